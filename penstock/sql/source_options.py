"""Options of a stream's source: secrets, and options that may change while the stream stays the same.

Most options decide which rows a stream has (``path``, ``subscribe``, ``header``): with another value it is another
stream.  There are two exceptions:

* *secrets*: passwords, tokens, keys, and logins in a url.  They go from the script to Spark only.  The journal, errors
  and plans have `REDACTED` in their place.
* *free* options: when and how much is read at a time, retries, and all options of a Kafka client.

In:  options as a script has them, or its text.  Out: the same without secrets; options that identify a stream.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from difflib import get_close_matches

from penstock.sql.query import Stream

Options = tuple[tuple[str, str], ...]

REDACTED = "*********(redacted)"
"""The replacement for secrets in the journal, with the words of Spark."""

_SENSITIVE_NAMES = (
    r"secret|passw(?:or)?d|passphrase|\bpwd\b|token|credential|jaas|shared[._-]?access|signature"
    r"|(?:access|account|api|private|sas|encryption)[._-]?key"
    r"|ssl\.key(?:\.|store\.(?:key|certificate|password))"
)
_SECRET = re.compile(_SENSITIVE_NAMES, re.IGNORECASE)

_SHORTEST_SECRET_CHARACTERS = 4
"""Shorter secrets are not replaced in messages, as they would match by chance."""

FREE_PREFIXES = ("kafka.", "kafkaconsumer.")
"""Prefixes, in lower case, of the options of a Kafka client: brokers, security, sizes, times."""

FREE_OPTIONS = frozenset(
    {
        # how often, and how much is read at a time
        "trigger",
        "maxfilespertrigger",
        "maxbytespertrigger",
        "maxcachedfiles",
        "discardcachedinputratio",
        "maxoffsetspertrigger",
        "minoffsetspertrigger",
        "maxtriggerdelay",
        "maxrecordsperpartition",
        "minpartitions",
        "numpartitions",
        # the start of a stream, without effect after the first batch
        "startingoffsets",
        "startingtimestamp",
        "startingoffsetsbytimestamp",
        "startingoffsetsbytimestampstrategy",
        # declarations about the order of arrival
        "ordered",
        "scrambling",
        "multiplicity",
        # errors, and files that were read
        "failondataloss",
        "fetchoffset.numretries",
        "fetchoffset.retryintervalms",
        "groupidprefix",
        "cleansource",
        "sourcearchivedir",
    }
)
"""Options, in lower case, whose new value takes effect at the next run."""


def is_secret(name: str) -> bool:
    """Check by its name whether the value of an option is secret.

    >>> [is_secret(name) for name in ("kafka.sasl.jaas.config", "kafka.ssl.keystore.location", "path")]
    [True, False, False]
    """
    return bool(_SECRET.search(name))


def is_free(name: str) -> bool:
    """Check whether an option may change while the stream stays the same.

    >>> is_free("maxFilesPerTrigger"), is_free("kafka.bootstrap.servers"), is_free("subscribe")
    (True, True, False)
    """
    key = name.lower()
    return key in FREE_OPTIONS or key.startswith(FREE_PREFIXES) or is_secret(key)


def without_secrets(options: Iterable[Iterable[str]]) -> Options:
    """Replace every secret in options by `REDACTED`.

    >>> without_secrets([("kafka.ssl.key.password", "hush"), ("url", "db://me:hush@host/x?token=hush")])
    (('kafka.ssl.key.password', '*********(redacted)'), ('url',
    'db://*********(redacted)@host/x?token=*********(redacted)'))
    """
    return tuple((name, REDACTED if is_secret(name) else _cleaned(value)) for name, value in options)


def without_stream_secrets(stream: Stream) -> Stream:
    """Return a stream without secrets, as a state stores it."""
    return replace(stream, options=without_secrets(stream.options))


def redacted(options: Iterable[tuple[str, str]]) -> list[str]:
    """Return the names of the options whose values were not kept."""
    return [name for name, value in options if REDACTED in value]


def row_meaning(options: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return the options that decide which rows a stream has, by their names in lower case."""
    return {name.lower(): value for name, value in without_secrets(options) if not is_free(name)}


def scrubbed(message: str, options: Iterable[tuple[str, str]]) -> str:
    """Replace the secrets of a source in a message of Spark or a driver.

    >>> scrubbed("Invalid value hush-hush for x", [("x.password", "hush-hush")])
    'Invalid value *********(redacted) for x'
    """
    for name, value in options:
        if is_secret(name) and len(value) >= _SHORTEST_SECRET_CHARACTERS:
            message = message.replace(value, REDACTED)
    return message


_LOGIN = re.compile(r"(?<=://)[^/@\s]*:[^/@\s]*(?=@)")
_PARAMETER = re.compile(rf"([?&;][\w.-]*(?:{_SENSITIVE_NAMES})[\w.-]*=)[^?&;\s]+", re.IGNORECASE)


def _cleaned(value: str) -> str:
    return _PARAMETER.sub(rf"\1{REDACTED}", _LOGIN.sub(REDACTED, value))


# --- in a script's text -----------------------------------------------------------------------------------------

_STRING = r"""'(?:[^'\\]++|\\.|'')*+'|"(?:[^"\\]++|\\.|"")*+" """.strip()
_WELL_FORMED_VALUE = rf"(?:(?:{_STRING})(?=[\s,;)]|\Z)|[\w.+/-]+(?=[,;)]|\s*\Z|\s+AND\b))"
_BROKEN_VALUE = r""".*?(?=,\s*[\w.`"-]+\s*=|\)\s*;|;\s*\n|\Z)"""
_NAME = re.compile(r"""[\w.`"'-]+""")
_VALUE = re.compile(
    rf"\s*=\s*(?P<value>{_WELL_FORMED_VALUE}|{_BROKEN_VALUE})|\s+(?P<bare>{_STRING})", re.DOTALL
)
"""The value behind the name of an option; behind a malformed one, all text up to the next option."""


def secrets_in(text: str) -> list[tuple[int, int]]:
    """Return the spans of secrets in a script, also in a malformed one.

    >>> text = "password = 'hush'"
    >>> [text[start:end] for start, end in secrets_in(text)]
    ["'hush'"]
    """
    names = (name.end() for name in _NAME.finditer(text) if _SECRET.search(name[0]))
    given = (_VALUE.match(text, end) for end in names)
    values = [option.span("value" if option["value"] is not None else "bare") for option in given if option]
    return values + [login.span() for login in _LOGIN.finditer(text)]


_STARRED = re.compile("[^\n\r'\"]")


def hidden(text: str, message: str = "") -> tuple[str, str]:
    """Replace the secrets of a script by stars of the same length, and those in a message about it."""
    pieces, at = [], 0
    for start, end in sorted(secrets_in(text)):
        secret = text[start:end].strip("'\"")
        for form in (text[start:end], secret if len(secret) >= _SHORTEST_SECRET_CHARACTERS else ""):
            message = message.replace(form, "***") if form else message
        pieces += [text[at:start], _STARRED.sub("*", text[max(at, start) : end])]
        at = max(at, end)
    return "".join([*pieces, text[at:]]), message


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
"""The class name of a source of Spark, in lower case; the group is the begin of its short name."""
_OF_CLASSES = {"binary": "binaryfile", "textsocket": "socket", "ratepermicrobatch": "rate-micro-batch"}


def _short(source: str) -> str:
    """Return the short name of a source that may be written as a class name of Spark.

    >>> _short("CSV"), _short("org.apache.spark.sql.execution.datasources.v2.csv.CSVDataSourceV2")
    ('csv', 'csv')
    """
    found = _CLASS.fullmatch(source.lower())
    name = found[1] if found else source.lower()
    return _OF_CLASSES.get(name, name)


def why_unknown(source: str, name: str, others: tuple[str, ...]) -> str:
    """Return why an option is unknown to a source; empty if it may be known.  `others` are options of Penstock.

    >>> why_unknown("parquet", "maxFilePerTrigger", ())
    'option maxFilePerTrigger is unknown to a parquet source, which would ignore it: did you mean maxFilesPerTrigger?'
    >>> why_unknown("parquet", "fs.s3a.endpoint", ()), why_unknown("org.me.Source", "whatever", ())
    ('', '')
    """
    short = _short(source)
    known = {option.lower(): option for option in (*_OPTIONS.get(short, "").split(), *others)}
    if short not in _OPTIONS or "." in name or name.lower() in known:
        return ""
    near = get_close_matches(name.lower(), known, n=1)
    instead = f"did you mean {known[near[0]]}?" if near else "leave it out"
    return f"option {name} is unknown to a {short} source, which would ignore it: {instead}"
