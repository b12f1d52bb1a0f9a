"""The functions and words that an expression may and may not use.

Functions are refused by name where we know that they cannot be right here; any other name passes to Spark as
it is, a user's own functions included. The lists are those of Spark 4.3's function registry, by its groups
(agg_funcs, window_funcs, generator_funcs), plus the functions whose value is not settled by their arguments:
a batch that is repeated after a failure must give the same answer.

Words that are no names (AND, INTERVAL, DAY ...) are let in by list. A word that is neither a column, a
function, a lambda's variable nor on the list is refused: that is how a construct that we do not know shows
itself.
"""

from __future__ import annotations


def words(text: str) -> frozenset[str]:
    """The words of a text, as a set."""
    return frozenset(text.split())


AGGREGATES = words(
    """
    any any_value approx_count_distinct approx_percentile approx_top_k approx_top_k_accumulate
    approx_top_k_combine array_agg avg bit_and bit_or bit_xor bitmap_and_agg bitmap_construct_agg
    bitmap_or_agg bool_and bool_or collect_list collect_set collect_union corr count count_if
    count_min_sketch covar_pop covar_samp every first first_value grouping grouping_id
    histogram_numeric hll_sketch_agg hll_union_agg kll_merge_agg_bigint kll_merge_agg_double
    kll_merge_agg_float kll_sketch_agg_bigint kll_sketch_agg_double kll_sketch_agg_float kurtosis
    last last_value listagg max max_by mean measure median min min_by mode percentile
    percentile_approx percentile_cont percentile_disc regr_avgx regr_avgy regr_count regr_intercept
    regr_r2 regr_slope regr_sxx regr_sxy regr_syy schema_of_variant_agg skewness some std stddev
    stddev_pop stddev_samp string_agg sum theta_intersection_agg theta_sketch_agg theta_union_agg
    try_avg try_sum tuple_intersection_agg_double tuple_intersection_agg_integer
    tuple_sketch_agg_double tuple_sketch_agg_integer tuple_union_agg_double tuple_union_agg_integer
    var_pop var_samp variance vector_avg vector_sum
    """
)

WINDOW_FUNCTIONS = words(
    """
    counter_diff cume_dist dense_rank lag lead nth_value ntile percent_rank rank row_number
    session_window window window_time
    """
)

GENERATORS = words(
    """
    explode explode_outer inline inline_outer json_tuple posexplode posexplode_outer stack
    variant_explode variant_explode_outer
    """
)

# Spark also reads the names of this set without parentheses, where no column has the name.
CURRENT = words(
    """
    current_catalog current_database current_date current_path current_schema current_time
    current_timestamp current_timezone current_user localtime localtimestamp session_user user
    """
)

UNREPEATABLE = CURRENT | words(
    """
    aes_encrypt curdate input_file_block_length input_file_block_start input_file_name java_method
    monotonically_increasing_id now rand randn random randstr reflect shuffle spark_partition_id
    try_reflect uniform uuid version
    """
)

UNITS = frozenset(
    f"{unit}{ending}"
    for unit in words("year quarter month week day hour minute second millisecond microsecond nanosecond")
    for ending in ("", "s")
)

# What EXTRACT and DATE_PART know besides units of time.
FIELDS = UNITS | words("yearofweek dayofweek dow dayofweek_iso dow_iso doy dayofyear")

# Their first argument is a unit of time when there are three arguments.
UNIT_FIRST = words("date_add dateadd date_diff datediff timestampadd timestampdiff")

WORDS = (
    words(
        """
    all and any as asymmetric between both case collate date distinct div else end escape false for from
    ilike in interval is leading like not null or overlay placing regexp rlike some symmetric then time
    timestamp timestamp_ltz timestamp_ntz to trailing true unknown when
    """
    )
    | FIELDS
)

# Words that may stand before a parenthesis without being the name of a function.
NO_FUNCTIONS = WORDS - {"any", "some", "all", "date", "timestamp", "time"} - FIELDS

# Spark reads these strings as moments relative to the query's start where it turns them into dates or times.
MOVING_MOMENTS = words("now today tomorrow yesterday")

TO_MOMENT = words(
    """
    cast date time timestamp timestamp_ltz timestamp_ntz to_date to_timestamp to_timestamp_ltz
    to_timestamp_ntz try_cast try_to_date try_to_timestamp
    """
)


def refusal(function: str) -> tuple[str, str] | None:
    """Why a function is refused: the construct and a hint; `None` if it may pass."""
    name = function.lower()
    if name in AGGREGATES:
        return f"the aggregate function {name} here", "SELECT and HAVING may use COUNT, SUM, AVG, MIN, MAX and STDDEV"
    if name in WINDOW_FUNCTIONS:
        return f"the window function {name}", "windows are written in brackets after a stream"
    if name in GENERATORS:
        return f"the generator {name}", "a joined row gives one row of the answer"
    if name == "identifier":
        return "the IDENTIFIER clause", "write the name itself"
    if name in UNREPEATABLE:
        return f"the function {name}", "a batch that is repeated must give the same answer"
    return None
