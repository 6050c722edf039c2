"""The options of Spark's own streaming sources, by which a misspelt one is found.

Spark ignores an option that its source does not know, so that ``maxFilePerTrigger`` would read all files at once.  The
lists are those of Spark 4.  Options of other sources are known to them only, and pass.  So do names with a dot: a file
source puts them into Hadoop's configuration (``fs.s3a.access.key``), and Kafka's client takes those after ``kafka.``.

In:  the format of a source and the name of an option.  Out: what is wrong with the name, if anything.
"""

from __future__ import annotations

import re
from difflib import get_close_matches

_FILES = """
    path basePath maxFilesPerTrigger maxBytesPerTrigger latestFirst fileNameOnly maxFileAge cleanSource sourceArchiveDir
    maxCachedFiles discardCachedInputRatio pathGlobFilter recursiveFileLookup modifiedBefore modifiedAfter
    ignoreCorruptFiles ignoreMissingFiles ignoredPathSegmentRegex archivePathFilter ignoreInvalidPartitionPaths
    compression
"""
_TEXTS = """
    mode columnNameOfCorruptRecord singleVariantColumn multiLine encoding charset locale timeZone dateFormat timeFormat
    timestampFormat timestampNTZFormat samplingRatio
"""
_CSV = """
    sep delimiter quote escape comment header inferSchema preferDate enforceSchema lineSep nullValue nanValue emptyValue
    positiveInf negativeInf ignoreLeadingWhiteSpace ignoreTrailingWhiteSpace charToEscapeQuoteEscaping maxColumns
    maxCharsPerColumn maxMalformedLogPerPartition unescapedQuoteHandling inputBufferSize columnPruning escapeQuotes
    quoteAll codec extension enableDateTimeParsingFallback
"""
_JSON = """
    lineSep primitivesAsString prefersDecimal inferTimestamp allowComments allowUnquotedFieldNames allowSingleQuotes
    allowNumericLeadingZero allowNumericLeadingZeros allowBackslashEscapingAnyCharacter allowUnquotedControlChars
    allowNonNumericNumbers dropFieldIfAllNull ignoreNullFields useUnsafeRow maxNestingDepth maxNumLen maxStringLen
    pretty sortKeys writeNonAsciiCharacterAsCodePoint enableDateTimeParsingFallback
"""
_XML = """
    rowTag rootTag declaration arrayElementName excludeAttribute attributePrefix valueTag ignoreSurroundingSpaces
    ignoreNamespace rowValidationXSDPath wildcardColName inferSchema preferDate prefersDecimal nullValue validateName
    indent useLegacyXMLParser
"""
_AVRO = """
    avroSchema avroSchemaUrl mode positionalFieldMatching datetimeRebaseMode ignoreExtension recordName recordNamespace
    enableStableIdentifiersForUnionType stableIdentifierPrefixForUnionType recursiveFieldMaxDepth
"""
_KAFKA = """
    subscribe subscribePattern assign startingOffsets startingTimestamp startingOffsetsByTimestamp
    startingOffsetsByTimestampStrategy endingOffsets endingTimestamp endingOffsetsByTimestamp failOnDataLoss
    includeHeaders minPartitions maxRecordsPerPartition minOffsetsPerTrigger maxOffsetsPerTrigger maxTriggerDelay
    groupIdPrefix
"""
_OPTIONS = {
    "parquet": f"{_FILES} mergeSchema datetimeRebaseMode int96RebaseMode",
    "orc": f"{_FILES} mergeSchema",
    "binaryfile": _FILES,
    "text": f"{_FILES} wholetext lineSep encoding",
    "csv": f"{_FILES} {_TEXTS} {_CSV}",
    "json": f"{_FILES} {_TEXTS} {_JSON}",
    "xml": f"{_FILES} {_TEXTS} {_XML}",
    "avro": f"{_FILES} {_AVRO}",
    "kafka": _KAFKA,
    "rate": "rowsPerSecond rampUpTime numPartitions",
    "rate-micro-batch": "rowsPerBatch startTimestamp advanceMillisPerBatch numPartitions",
    "socket": "host port includeTimestamp numPartitions",
}

_CLASS = re.compile(
    r"(?:org\.apache\.spark\.sql|com\.databricks\.spark)\.(?:\w+\.)*?(\w+?)"
    r"(?:fileformat|datasourcev2|sourceprovider|streamprovider|provider)?(?:\.defaultsource)?"
)
"""The name of a class of Spark's that is a source, in lower case; what it is called begins with the group."""
_OF_CLASSES = {"binary": "binaryfile", "textsocket": "socket", "ratepermicrobatch": "rate-micro-batch"}


def _short(source: str) -> str:
    """Give the short name of a source that may be written as a class of Spark's.

    >>> _short("CSV"), _short("org.apache.spark.sql.execution.datasources.v2.csv.CSVDataSourceV2")
    ('csv', 'csv')
    """
    found = _CLASS.fullmatch(source.lower())
    name = found[1] if found else source.lower()
    return _OF_CLASSES.get(name, name)


def why_unknown(source: str, name: str, others: tuple[str, ...]) -> str:
    """Say why an option is unknown to a source; empty if it may be known. `others` are those that are ours.

    >>> why_unknown("parquet", "maxFilePerTrigger", ())
    'option maxFilePerTrigger is unknown to a parquet source, which would ignore it: did you mean maxFilesPerTrigger?'
    >>> why_unknown("parquet", "fs.s3a.endpoint", ()), why_unknown("org.me.Source", "whatever", ())
    ('', '')
    """
    short = _short(source)
    known = {each.lower(): each for each in (*_OPTIONS.get(short, "").split(), *others)}
    if short not in _OPTIONS or "." in name or name.lower() in known:
        return ""
    near = get_close_matches(name.lower(), known, n=1)
    instead = f"did you mean {known[near[0]]}?" if near else "leave it out"
    return f"option {name} is unknown to a {short} source, which would ignore it: {instead}"
