"""Limits and thresholds of the whole package, with their units in their names."""

CACHE_IDLE_SECONDS = 3600.0
"""A cached copy of a remote file is removed after this time without use."""

CACHE_IDLE_SECONDS_WHEN_FULL = 60.0
"""The same, while the disk is nearly full."""

CACHE_FREE_DISK_SHARE = 0.1
"""A disk with a smaller share of free space counts as nearly full."""

CACHE_TOUCH_SECONDS = 30.0
"""The access time of a cached copy is updated at most this often."""

CACHE_SWEEP_SECONDS = 60.0
"""Minimum time between two searches for unused copies, in one process."""

MAX_REMEMBERED_CHECKSUMS = 1 << 16
"""Files that a process remembers as checked; beyond that it starts over."""

MAX_DICTIONARY_BYTES = 1 << 14
"""Distinct values of a column in a row group, in bytes, up to which they are written as a dictionary."""

ENCODING_SAMPLE_ROWS = 1 << 12
"""First rows of a result file from which the encoding of each column is chosen."""

MAX_DELTA_BITS = 32
"""Integers whose range has more bits are not written as differences."""

MAX_FOLDER_NAME_CHARACTERS = 200
"""Longer names of queries and streams are shortened in directory names; file systems take 255 bytes."""

MERGE_FAN_IN = 8
"""Files or segments of one generation that are merged into one of the next."""

MAX_ROWS_PER_SORT = 1 << 20
"""Results that are sorted at once, fewer if they are wide. Results of one instant stay together."""

HOLD_BATCH_ROWS = 1 << 16
"""Rows of a record batch in a hold file."""

MAX_REMEMBERED_CHANGES = 32
"""Plan changes and order switches that the ledger remembers."""

MAX_ORIGIN_FILES = 1000
"""Files of a batch that its origin names. Of more it has a digest only, so they cannot be restored."""

MAX_ORIGIN_CHARACTERS = 1 << 16
"""Characters of a source's initial offsets that an origin keeps."""

MAX_ROWS_PER_ROW_GROUP = 1 << 17
"""Rows of a row group in a result file, fewer if they are wide."""

MAX_PROMISE_RANGES = 1024
"""Ranges and wildcards that a promise index remembers. Each is compared with every row."""

PROMISE_SLACK_SHARE = 0.25
"""Share by which an index may exceed its budget before the oldest promises are forgotten."""

FADE_FACTOR = 0.9
"""Weight of an observation when the next one arrives."""

MAX_TRAFFIC_PATTERNS = 64
"""Predicate bit patterns that are counted separately for a log; rarer ones are forgotten."""

DELAY_FADE_FACTOR = 0.98
"""Weight of a unit's delays when the next unit's arrive: about the last fifty count."""

MIN_DELAY_COUNT = 0.01
"""A bucket of delays with fewer results is forgotten."""

MAX_EARLY_REMOVALS = 64
"""Notes on rows removed early that a log keeps; beyond that, neighbours are merged."""

MIN_SEGMENTS_PER_MERGE = 3
"""Neighbours that are merged at least, where more would span too much time."""

RETENTION_TIME_PARTS = 8
"""Segments are merged only if they end within one of this many parts of the retained time."""

MIN_LOOSE_SHARE = 1 / 4
"""When memory is tight, a segment is rewritten once this share of its rows has left all buffers."""

MAX_MERGED_SEGMENT_BYTES = 256 << 20
"""Size of a merged segment, so that merging it fits in a worker's memory."""

MAX_ROWS_PER_PIECE = 1 << 20
"""Event times of a merged piece: 8 MB."""

MAX_SEGMENT_PATTERNS = 64
"""Bit patterns that a segment's statistics count separately; of more, only the total."""

MAX_ROWS_WITH_ALL_TIMES = 512
"""Rows of a segment up to which its statistics hold the event time of each."""

MAX_PATTERN_TIMES = 65
"""Event times in the statistics of a larger segment, divided among its patterns."""

MAX_SAMPLED_TIMES = 8192
"""Event times of a segment that are sorted to choose those of its statistics."""

WAITING_FILES_PER_TASK = 4
"""Result files per task that are not merged yet: a unit writes one per task."""

TABLE_MERGE_FAN_IN = 4
"""Tables of pairs of one generation that are merged into one of the next."""

MAX_MERGED_FILE_BYTES = 64 << 20
"""A result file of this size is not merged any more."""

MAX_REMEMBERED_MISSES = 32
"""Occasions of missed results that a join without a window remembers."""

CONTROL_POLL_SECONDS = 0.3
"""Time between two looks for requests, or for an answer."""

# --- units ----------------------------------------------------------------------------------------------------------

UNIT_ROWS_PER_TASK = 1 << 16
"""New rows and expected pairs of a unit per task: about 10 milliseconds of work, more than the overhead of a task."""

OUTER_UNIT_SECONDS = 1.0
"""Target for a unit of outer slices."""

MAX_RING_RUNS = 12
"""Units in which the rings of a chain advance: more units would cost more jobs than they save in waiting."""

MAX_STATIONS = 64
"""Stations between the slowest slices and the newest that are remembered."""

MAX_PARTNER_WAIT_SECONDS = 1.0
"""A batch waits at most this long for a batch of its partner, to be joined with it."""

BUSY_STREAM_POLL_SECONDS = 0.5
"""Time between two looks at a silent stream whose source has input."""

MAX_IDLE_WAIT_SECONDS = 3600.0
"""The joiner wakes up at least this often, if a stream may become idle."""

FANOUT_SAMPLE_ROWS = 256
"""New rows of one input whose partners are counted in one unit."""

FIRST_SAMPLED_UNITS = 4
"""Units of a new group in which partners are counted."""

UNITS_PER_FANOUT_SAMPLE = 8
"""Later, partners are counted in one of this many units."""

MAX_EXPECTED_PARTNERS = 10_000
"""Partners of one row in one input from which its key is logged."""

MAX_SHOWN_KEY_CHARACTERS = 80
"""Characters of each part of a key in that message."""

# --- expiry and compaction ------------------------------------------------------------------------------------------

REPLACED_FILE_SECONDS = 600.0
"""Result files are kept this long after they were merged, for readers that have begun."""

ROWS_PER_PROMISE_CHECK = 256
"""A log is checked against promises when one has taken effect per this many of its rows."""

MAX_CHECK_DELAY_FACTOR = 64
"""Maximum factor on the number above. It doubles after a check that finished less than one row in this many."""

PROMISES_PER_PROPAGATION = 1024
"""Finished values are delivered when one promise has taken effect per this many remembered ones."""

# --- joins without a window -----------------------------------------------------------------------------------------

KEPT_ROWS_BUDGET_SHARE = 3 / 4
"""Share of a memory budget for needed rows; the rest is for rows that are no longer needed, in the same segments."""

STRATEGY_RETURN_SHARE = 3 / 4
"""A less thrifty strategy is taken up again if it needs no more than this share of the budget."""

MIN_ROWS_TO_JUDGE_ORDER = 10_000
"""Rows of a stream before which its order is not judged."""

MAX_ORDERED_SHARE = 3 / 4
"""A stream counts as ordered if no row is out of order by more than this share of its rows."""

# --- the choice of chains -------------------------------------------------------------------------------------------

TURNS_PER_RECUT_LOOK = 2
"""Turns per look at the chains, for each eight queries: a look takes time that grows with their number."""

MIN_RECUT_GAIN = 0.1
"""Share of a chain's work that another chain has to save."""

RECUT_LOOKS = 3
"""Looks in a row at which it has to save that."""

MAX_QUERIES_CHOSEN_AT_ONCE = 36
"""Queries of a chain up to which it is chosen at once when windows change: a matter of milliseconds."""

MAX_QUERIES_TO_CHOOSE = 200
"""Queries of a chain up to which it is chosen at all, which takes a second; a longer one is cut at every window."""

# --- ingest ---------------------------------------------------------------------------------------------------------

MAX_ARROW_PREDICATE_CHARACTERS = 2000
"""Length of a predicate that Arrow evaluates. It recurses, so this also bounds the depth of its stack."""

ARROW_READ_ROWS = 1 << 12
"""Rows of a Parquet file that Arrow decodes at a time. A footer does not tell the length of values."""

ARROW_PIECE_BYTES = 1 << 23
"""Bytes of decoded rows for which Arrow evaluates expressions at once."""

MIN_ROWS_PER_INGEST_TASK = 1 << 16
"""A batch of fewer rows that Arrow reads is not divided: another task would take longer."""

MAX_CORRUPT_CHARACTERS = 1 << 20
"""Characters of a malformed line that are kept: of XML, Spark returns the whole document for each row."""

MAX_SEPARATE_VALUES = 1024
"""Values at either end of a part of a batch whose rows are counted value by value."""

MAX_CACHED_PLANS = 64
"""Spark plans of jobs that a runner keeps."""

EXECUTOR_POLL_SECONDS = 0.1
"""Time between two checks whether the first task has started."""

REPAIR_LOOK_BACK_BATCHES = 5
"""Batches of a checkpoint among which a repair looks for the settings of the session."""

MAX_PIECE_BYTES = 64 << 20
"""Bytes of rows that are held, sorted or gathered at once.  A worker has a few such pieces in memory."""

MAX_PROBE_PAIRS = 1 << 20
"""Pairs that a probe makes at once, whatever the multiplicity of a key."""

MAX_PARTIALS = 1 << 17
"""Partial results of a join of many streams whose runs are searched at once."""

MAX_SAMPLED_ROWS = 1024
"""Rows of sampled values that an accuracy sketch keeps; a quarter as many rows of closed values are added."""

MAX_OPEN_VALUES = 4096
"""Values at either end of a stream that have a count each."""

MIN_OPEN_ROWS = 512
"""Rows whose values stay open even in a stream that has been in order so far."""
