"""The settings of a Spark session that decide the meaning of a query: of its text, and of its expressions.

They are those in force when a run starts. A checkpoint has them on record, so that it is not resumed with others: rows
whose keys or columns were computed in two ways would meet. Settings for speed, and for the reading of files by a
source, are not among them.
"""

from __future__ import annotations

from collections.abc import Mapping

from anabranch.state.store import Json

TIME_ZONE = "spark.sql.session.timeZone"
DOUBLE_QUOTED_NAMES = "spark.sql.ansi.doubleQuotedIdentifiers"
PATTERNS_AS_NAMES = "spark.sql.parser.quotedRegexColumnNames"

# By name, and None where a setting without a default is not set.
Settings = Mapping[str, str | None]

_HOW_TEXT_IS_READ = (
    DOUBLE_QUOTED_NAMES,
    "spark.sql.ansi.enforceReservedKeywords",
    "spark.sql.caseSensitive",
    "spark.sql.charAsVarchar",
    "spark.sql.legacy.allowNegativeScaleOfDecimal",
    "spark.sql.legacy.bangEqualsNot",
    "spark.sql.legacy.charVarcharAsString",
    "spark.sql.legacy.consecutiveStringLiterals.enabled",
    "spark.sql.legacy.exponentLiteralAsDecimal.enabled",
    "spark.sql.legacy.interval.enabled",
    "spark.sql.legacy.literal.pickMinimumPrecision",
    "spark.sql.parser.escapedStringLiterals",
    PATTERNS_AS_NAMES,
    "spark.sql.preserveCharVarcharTypeInfo",
    "spark.sql.timestampType",
)
_WHAT_EXPRESSIONS_GIVE = (
    TIME_ZONE,
    "spark.sql.ansi.enabled",
    "spark.sql.binaryOutputStyle",
    "spark.sql.chunkBase64String.enabled",
    "spark.sql.decimalOperations.allowPrecisionLoss",
    "spark.sql.function.concatBinaryAsString",
    "spark.sql.function.eltOutputAsString",
    "spark.sql.icu.caseMappings.enabled",
    "spark.sql.json.enableExactStringParsing",
    "spark.sql.json.enablePartialResults",
    "spark.sql.jsonGenerator.ignoreNullFields",
    "spark.sql.legacy.allowNullComparisonResultInArraySort",
    "spark.sql.legacy.castComplexTypesToString.enabled",
    "spark.sql.legacy.codingErrorAction",
    "spark.sql.legacy.collationAwareHashFunctions",
    "spark.sql.legacy.createEmptyCollectionUsingStringType",
    "spark.sql.legacy.csv.enableDateTimeParsingFallback",
    "spark.sql.legacy.decimal.retainFractionDigitsOnTruncate",
    "spark.sql.legacy.disableMapKeyNormalization",
    "spark.sql.legacy.duplicateBetweenInput",
    "spark.sql.legacy.followThreeValuedLogicInArrayExists",
    "spark.sql.legacy.fromDayTimeString.enabled",
    "spark.sql.legacy.javaCharsets",
    "spark.sql.legacy.json.allowEmptyString.enabled",
    "spark.sql.legacy.json.enableDateTimeParsingFallback",
    "spark.sql.legacy.lpadRpadAlwaysReturnString",
    "spark.sql.legacy.negativeIndexInArrayInsert",
    "spark.sql.legacy.noCharPaddingInPredicate",
    "spark.sql.legacy.nullInEmptyListBehavior",
    "spark.sql.legacy.sizeOfNull",
    "spark.sql.legacy.timeParserPolicy",
    "spark.sql.legacy.truncateForEmptyRegexSplit",
    "spark.sql.legacy.typeCoercion.datetimeToString.enabled",
    "spark.sql.mapKeyDedupPolicy",
    "spark.sql.readSideCharPadding",
    "spark.sql.variant.allowDuplicateKeys",
)
NAMES = (*_HOW_TEXT_IS_READ, *_WHAT_EXPRESSIONS_GIVE)


def describe_engine(version: str, groups: int, settings: Settings | None) -> Json:
    """The part of a checkpoint's description that all its plans have in common."""
    recorded = dict(settings or {})
    return {
        "engine version": ".".join(version.split(".")[:2]),
        "groups": groups,
        "session time zone": recorded.pop(TIME_ZONE, None),
        "settings": recorded,
    }


def changed_settings(then: Settings, now: Settings) -> list[str]:
    """The settings that differ, as texts for a message; a setting that only one of them has is not compared."""
    return [
        f"{name} was {then[name]!r} and is now {now[name]!r}"
        for name in sorted(then.keys() & now.keys())
        if then[name] != now[name]
    ]
