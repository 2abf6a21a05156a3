"""Sentences said anew with the same meaning, or altered so that they say something else; pure."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from edge_rag.analysis.languages import ENGLISH_FUNCTION_WORDS
from scripts.training.entailment.pairs import Verdict

Alteration = Callable[[str, random.Random], str | None]
"""Returns the altered sentence, or None where there is nothing to alter."""

_COUNTED: Final = [
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
    "fifteen",
    "sixteen",
    "seventeen",
    "eighteen",
    "nineteen",
    "twenty",
]
NUMBER_WORDS: Final = {word: str(number) for number, word in enumerate(_COUNTED, 1)}
_NUMBER = re.compile(r"(?<![\w.,])\d{1,3}(?:,\d{3})+(?:\.\d+)?(?![\w])|(?<![\w.,])\d+(?:\.\d+)?(?![\w])")
_NUMBER_WORD = re.compile(r"\b(?:" + "|".join(word for word in NUMBER_WORDS if word != "one") + r")\b", re.IGNORECASE)
_WORD_OF: Final = {digits: word for word, digits in NUMBER_WORDS.items()}
_ORDINALS: Final = ["first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth"]
_MONTHS: Final = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
]
_DAYS: Final = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
_SETS: Final = (
    "seconds minutes hours days weeks months years", "second minute hour day week month year", "mm cm m km",
    "millimetres centimetres metres kilometres miles feet inches", "meters kilometers miles feet inches yards",
    "mg g kg tonnes", "grams kilograms tonnes pounds ounces", "millilitres litres gallons", "bar mbar kPa MPa psi",
    "mV V kV volts", "mA A amperes", "W kW MW watts kilowatts megawatts", "Hz kHz MHz GHz", "°C °F",
    "daily weekly monthly yearly hourly", "dollars euros pounds yen", "bytes kilobytes megabytes gigabytes",
    "red blue green yellow black white orange grey brown", "hundred thousand million billion",
    "north south east west", "northern southern eastern western", "spring summer autumn winter",
    "morning afternoon evening night", "once twice", "half third quarter", "father mother son daughter brother sister",
)  # fmt: skip
_OPPOSITES: Final = """
above/below over/under before/after more/less most/least maximum/minimum higher/lower highest/lowest open/close
opened/closed opens/closes increase/decrease increases/decreases increased/decreased increasing/decreasing left/right
on/off first/last start/stop started/stopped starts/stops always/never upper/lower hot/cold wet/dry full/empty
inside/outside early/late earlier/later largest/smallest larger/smaller large/small long/short longer/shorter
longest/shortest high/low old/new older/newer oldest/newest many/few often/rarely usually/rarely with/without
win/lose won/lost male/female men/women man/woman boy/girl up/down raised/lowered joined/left allowed/forbidden
possible/impossible required/optional success/failure successful/unsuccessful best/worst better/worse true/false
same/different begins/ends began/ended begin/end internal/external public/private positive/negative
included/excluded includes/excludes including/excluding accepted/rejected enabled/disabled enable/disable
hired/fired north/south east/west rural/urban major/minor live/dead born/died married/divorced buy/sell bought/sold
ancient/modern agree/disagree agreed/disagreed supported/opposed strong/weak thick/thin fast/slow day/night
at least/at most more than/less than/fewer than up to/at least all/none everyone/nobody both/neither
"""
_AUXILIARY = re.compile(
    r"\b(is|was|were|are|had|has|have|can|could|will|would|must|should|may|might|does|did|do)\b(?! not\b)(?!n't)"
)
_NEGATED = re.compile(r"\b(?:(is|was|were|are|had|has|have|could|would|must|should|does|did|do)(?: not|n't)|cannot)\b")
_PAST = re.compile(
    r"\b(he|she|it|they|He|She|It|They|who|also|team|company|family|film|band|city|group) ([a-z]{2,}ed)\b"
)
_PRESENT = re.compile(r"\b(it|he|she|It|He|She|which|that) ([a-z]{3,}[^s\W])s\b")
_MODALS: Final = {
    "must": ("need not", "may", "must not"),
    "should": ("should not", "must"),
    "may": ("must", "may not", "will"),
    "can": ("cannot", "must"),
    "will": ("may", "will not"),
    "might": ("will", "must"),
    "could": ("could not", "would"),
    "is": ("may be", "is not", "is no longer"),
    "are": ("may be", "are not", "are no longer"),
}
_QUANTIFIERS: Final = {
    "some": ("all", "most", "no"),
    "many": ("all", "few", "no"),
    "most": ("all", "few", "no"),
    "several": ("all", "no"),
    "often": ("always", "never"),
    "sometimes": ("always", "never"),
    "usually": ("always", "never"),
    "every": ("no", "almost no"),
    "all": ("no", "few"),
    "each": ("no",),
    "always": ("never", "rarely"),
    "never": ("always", "sometimes"),
    "no": ("some", "every"),
    "about": ("exactly", "more than", "less than"),
    "only": ("not only", "never"),
    "partly": ("entirely",),
    "almost": ("more than",),
    "nearly": ("more than",),
}
_WEAKER: Final = {
    "all": "some", "every": "some", "always": "often", "must": "should", "exactly": "about", "many": "some",
}  # fmt: skip
_SPELT: Final = (
    ("%", " percent"), (" km ", " kilometres "), (" kg ", " kilograms "), (" m ", " metres "), (" percent", "%"),
    (" kilometres", " km"), (" hours", " h"), (" minutes", " min"), (" cannot ", " can not "), ("n't ", " not "),
    (" does not ", " doesn't "), (" is not ", " isn't "), (" was not ", " wasn't "), (" approximately ", " about "),
    (" about ", " approximately "), (" begins ", " starts "), (" started ", " began "), (" large ", " big "),
    (" because ", " since "), (" must be ", " has to be "), (" must ", " has to "), (" every year", " annually"),
    (" yearly", " every year"), (" annually", " every year"), (" monthly", " every month"), (" every day", " daily"),
    (" every week", " weekly"), (" prior to ", " before "), (" before ", " prior to "), (" however,", ""),
    (" purchased ", " bought "), (" built ", " constructed "), (" constructed ", " built "), (" located in ", " in "),
    (" is used to ", " serves to "), (" such as ", " for example "), (" consists of ", " is made up of "),
    (" in order to ", " to "), (" a number of ", " several "), (" may be ", " can be "), (" attempted ", " tried "),
)  # fmt: skip
_LEADING = re.compile(
    r"^(?:In|On|At|After|Before|During|By|From|However|Later|Then|Since|As|For|Despite|Following)\b[^,]{0,60}, (?=\w)"
)
_BRACKETS = re.compile(r" ?\([^()]*\)")
_TRAILING = re.compile(
    r", (?:which|who|where|whose|although|while|including|such as|as well as|with|and is|and was)\b[^,;]*\.$"
)
_NAME = re.compile(r"(?<=[a-z,] )[A-Z][a-z]{2,}(?: [A-Z][a-z]+)*")
_CONTENT = re.compile(r"\b[a-z]{5,}\b")
_ENDINGS: Final = ("ing", "ed", "ly", "tion", "s", "")
_FILLER = re.compile(
    r" (?:very|also|then|quite|often referred to as|subsequently|currently|just|highly|eventually)(?= )"
)
_ABOUT = re.compile(r"\babout \d")


def numbers_changed(sentence: str, chance: random.Random) -> str | None:
    """Changes one number, date or ordinal."""
    places = [*_NUMBER.finditer(sentence), *_NUMBER_WORD.finditer(sentence)]
    places += re.finditer(r"\b(?:" + "|".join((*_ORDINALS, *_MONTHS, *_DAYS)) + r")\b", sentence)
    if not places:
        return None
    place = chance.choice(places)
    return sentence[: place.start()] + other_number(place[0], chance) + sentence[place.end() :]


def other_number(written: str, chance: random.Random) -> str:
    """Returns another number in the same form; never the same value."""
    for members in (_ORDINALS, _MONTHS, _DAYS):
        if written in members:
            return chance.choice([each for each in members if each != written])
    if written.lower() in NUMBER_WORDS:
        other = chance.choice([word for word in NUMBER_WORDS if word != written.lower()])
        return other.capitalize() if written[0].isupper() else other
    plain = written.replace(",", "")
    if plain.isdigit() and len(plain) == 4 and "," not in written and "1000" <= plain <= "2100":
        year = str(int(plain) + chance.choice((-1, 1)) * chance.choice((1, 2, 3, 5, 9, 10, 20, 100)))
        return _swapped(plain, chance) or year if chance.random() < 0.3 else year
    if chance.random() < 0.35 and (swapped := _swapped(plain, chance)) is not None:
        return _grouped(swapped, "," in written)
    if "." in plain and chance.random() < 0.8:
        digits = len(plain.partition(".")[2])
        changed = float(plain) * chance.choice((0.5, 0.9, 1.1, 1.2, 2, 10)) + chance.choice((0.1, 0.5, 1))
        return f"{changed:.{digits}f}" if f"{changed:.{digits}f}" != plain else f"{changed + 1:.{digits}f}"
    value = int(float(plain))
    options = [value + step for step in (1, 2, 3, 5, 10, -1, -2, -5)] + [value * 2, value * 10, value // 2, value // 10]
    options += [round(value * factor) for factor in (0.8, 1.1, 1.25, 1.5)]
    left = [each for each in options if each > 0 and each != value] or [value + 1]
    return _grouped(str(chance.choice(left)), "," in written)


def numbers_respelt(sentence: str, chance: random.Random) -> str | None:
    """Writes a number in another way: a word for digits, digits for a word, with or without a comma."""
    places = [
        place
        for place in (*_NUMBER.finditer(sentence), *_NUMBER_WORD.finditer(sentence))
        if _respelt(place[0]) is not None
    ]
    if not places:
        return None
    place = chance.choice(places)
    return sentence[: place.start()] + str(_respelt(place[0])) + sentence[place.end() :]


def numbers_exchanged(sentence: str, chance: random.Random) -> str | None:
    """Exchanges two different numbers."""
    return _exchanged(sentence, list(_NUMBER.finditer(sentence)), chance)


def names_exchanged(sentence: str, chance: random.Random) -> str | None:
    """Exchanges two names between which there is more than a list."""
    names = list(re.finditer(r"\b[A-Z][a-z]{2,}(?: [A-Z][a-z]+)*", sentence))
    apart = [
        (one, other)
        for one in names
        for other in names
        if one.end() < other.start()
        and one[0] != other[0]
        and one[0].lower() not in ENGLISH_FUNCTION_WORDS
        and re.search(r"\b(?:is|was|were|by|from|to|than|of|for|[a-z]{3,}ed)\b", sentence[one.end() : other.start()])
        and not re.search(r"\b(?:and|or|with)\b", sentence[one.end() : other.start()])
    ]
    return _exchanged(sentence, list(chance.choice(apart)), chance) if apart else None


def unit_changed(sentence: str, chance: random.Random) -> str | None:
    """Puts another member of a closed set in place of one: a unit, a colour, a direction."""
    found = [
        (place, members)
        for members in map(str.split, _SETS)
        for place in re.finditer(r"(?<!\w)(?:" + "|".join(map(re.escape, members)) + r")(?!\w)", sentence)
        if len(place[0]) > 3 or sentence[: place.start()].rstrip()[-1:].isdigit()
    ]
    if not found:
        return None
    place, members = chance.choice(found)
    other = chance.choice([each for each in members if each != place[0]])
    return sentence[: place.start()] + other + sentence[place.end() :]


def negated(sentence: str, chance: random.Random) -> str | None:
    """Denies what the sentence says, or says what it denies."""
    options: list[str] = []
    for place in _NEGATED.finditer(sentence):
        options.append(sentence[: place.start()] + (place[1] or "can") + sentence[place.end() :])
    first = _AUXILIARY.search(sentence)
    if first is not None and not options:
        words = ["not", "never", "not"] if first[1] != "do" else ["not"]
        options.append(f"{sentence[: first.end()]} {chance.choice(words)}{sentence[first.end() :]}")
    for place in _PAST.finditer(sentence):
        options.append(f"{sentence[: place.start()]}{place[1]} never {place[2]}{sentence[place.end() :]}")
    for place in _PRESENT.finditer(sentence):
        options.append(f"{sentence[: place.start()]}{place[1]} does not {place[2]}{sentence[place.end() :]}")
    return chance.choice(options) if options else None


def opposed(sentence: str, chance: random.Random) -> str | None:
    """Puts a word's opposite in its place."""
    options: list[str] = []
    for group in re.findall(r"\S[^/\n]*(?:/[^\s/]+(?: (?:than|most|least|to)\b)?)+|\S+/\S+", _OPPOSITES):
        members = [each.strip() for each in group.split("/")]
        for member in members:
            for place in re.finditer(rf"(?<!\w){re.escape(member)}(?!\w)", sentence):
                other = chance.choice([each for each in members if each != member])
                options.append(sentence[: place.start()] + other + sentence[place.end() :])
    return chance.choice(options) if options else None


def strengthened(sentence: str, chance: random.Random) -> str | None:
    """Claims more or something else by a quantifier, a modal verb, or an added "only"."""
    options: list[str] = []
    for words in (_MODALS, _QUANTIFIERS):
        for word, others in words.items():
            for place in re.finditer(rf"\b{word}\b(?! not)", sentence):
                options.append(sentence[: place.start()] + chance.choice(others) + sentence[place.end() :])
    auxiliary = _AUXILIARY.search(sentence)
    if auxiliary is not None:
        options.append(f"{sentence[: auxiliary.end()]} only{sentence[auxiliary.end() :]}")
    return chance.choice(options) if options else None


def weakened(sentence: str, chance: random.Random) -> str | None:
    """Claims less by a quantifier; None in sentences that deny something."""
    if re.search(r"\b(?:not|no|never|without|few|if|unless)\b|n't", sentence):
        return None
    options = [
        sentence[: place.start()] + weaker + sentence[place.end() :]
        for word, weaker in _WEAKER.items()
        for place in re.finditer(rf"\b{word}\b", sentence)
    ]
    return chance.choice(options) if options else None


def shortened(sentence: str, chance: random.Random) -> str | None:
    """Leaves out what can be left out: an introduction, brackets, a relative clause at the end, fillers."""
    options: list[str] = []
    if (lead := _LEADING.match(sentence)) is not None and not re.match(r"(?:If|Unless|When)\b", sentence):
        rest = sentence[lead.end() :]
        options.append(rest[0].upper() + rest[1:])
    options += [done for pattern in (_BRACKETS, _FILLER) if (done := pattern.sub("", sentence)) != sentence]
    if (tail := _TRAILING.search(sentence)) is not None:
        options.append(f"{sentence[: tail.start()]}.")
    if len(sentence) > 60 and (pieces := sentence.split("; "))[1:]:
        options.append(f"{pieces[0]}.")
    return chance.choice(options) if options else None


def respelt(sentence: str, chance: random.Random) -> str | None:
    """Says a few words in another way."""
    options = [
        (one, other) for one, other in _SPELT if one in sentence and (one != " about " or _ABOUT.search(sentence))
    ]
    if not options:
        return None
    one, other = chance.choice(options)
    return sentence.replace(one, other, 1)


class Others:
    """Alterations that take words and names from other sentences.

    Args:
        sentences: Where they are taken from.
    """

    def __init__(self, sentences: Sequence[str]) -> None:
        self._names = [place[0] for sentence in sentences for place in _NAME.finditer(sentence)]
        words = {word for sentence in sentences for word in _CONTENT.findall(sentence)} - ENGLISH_FUNCTION_WORDS
        self._words: dict[str, list[str]] = {ending: [] for ending in _ENDINGS}
        for word in sorted(words):
            self._words[_ending(word)].append(word)
        self._sentences = sentences

    def renamed(self, sentence: str, chance: random.Random) -> str | None:
        """Puts another name in place of one."""
        places = list(_NAME.finditer(sentence))
        if not places:
            return None
        place, name = chance.choice(places), chance.choice(self._names)
        return None if name in sentence else sentence[: place.start()] + name + sentence[place.end() :]

    def replaced(self, sentence: str, chance: random.Random) -> str | None:
        """Puts another word with the same ending in place of one or two."""
        for _ in range(chance.choice((1, 1, 2))):
            places = [place for place in _CONTENT.finditer(sentence) if place[0] not in ENGLISH_FUNCTION_WORDS]
            if not places:
                return None
            place = chance.choice(places)
            other = chance.choice(self._words[_ending(place[0])])
            if other == place[0]:
                return None
            sentence = sentence[: place.start()] + other + sentence[place.end() :]
        return sentence

    def spliced(self, sentence: str, chance: random.Random) -> str | None:
        """Goes on with the second half of another sentence."""
        words, others = sentence.split(), chance.choice(self._sentences).split()
        if min(len(words), len(others)) <= 8:
            return None
        return " ".join((*words[: len(words) // 2], *others[len(others) // 2 :]))


SAME: Final[Sequence[tuple[Alteration, float]]] = (
    (numbers_respelt, 2.0), (shortened, 3.0), (respelt, 3.0), (weakened, 1.0),
)  # fmt: skip
"""What the sentence says still holds; with how often each is tried."""

OPPOSITE: Final[Sequence[tuple[Alteration, float]]] = (
    (numbers_changed, 4.0), (negated, 2.5), (unit_changed, 1.5), (opposed, 2.0),
)  # fmt: skip
"""The sentence contradicts the result."""

UNSAID: Final[Sequence[tuple[Alteration, float]]] = (
    (numbers_exchanged, 1.0), (names_exchanged, 1.5), (strengthened, 2.0),
)  # fmt: skip
"""The sentence does not say the result, whether or not it contradicts it."""


def altered(sentence: str, chance: random.Random, others: Others, count: int) -> Iterator[tuple[str, Verdict]]:
    """Yields up to so many sentences that the sentence does not entail, each made in another way."""
    kinds = [(alteration, weight, Verdict.CONTRADICTION) for alteration, weight in OPPOSITE]
    kinds += [(alteration, weight, Verdict.NOT_ENTAILED) for alteration, weight in UNSAID]
    kinds += [
        (others.renamed, 2.0, Verdict.NOT_ENTAILED),
        (others.replaced, 1.5, Verdict.NOT_ENTAILED),
        (others.spliced, 0.5, Verdict.NOT_ENTAILED),
    ]
    order = sorted(kinds, key=lambda kind: chance.random() ** (1 / kind[1]), reverse=True)
    found = 0
    for alteration, _, verdict in order:
        if found < count and (result := alteration(sentence, chance)) not in (None, sentence):
            found += 1
            yield str(result), verdict


def same(sentence: str, chance: random.Random) -> str:
    """Returns the sentence said in another way, or as it is where no way is known."""
    order = sorted(SAME, key=lambda kind: chance.random() ** (1 / kind[1]), reverse=True)
    for alteration, _ in order:
        if (result := alteration(sentence, chance)) is not None:
            return result
    return sentence


def _exchanged(sentence: str, places: list[re.Match[str]], chance: random.Random) -> str | None:
    pairs = [
        (one, other)
        for one in places
        for other in places
        if one.end() <= other.start() and one[0].replace(",", "") != other[0].replace(",", "")
    ]
    if not pairs:
        return None
    one, other = chance.choice(pairs)
    between = sentence[one.end() : other.start()]
    return sentence[: one.start()] + other[0] + between + one[0] + sentence[other.end() :]


def _swapped(digits: str, chance: random.Random) -> str | None:
    """Exchanges two neighbouring digits, so that the number does not start with 0."""
    places = [at for at in range(len(digits) - 1) if digits[at].isdigit() and digits[at + 1].isdigit()]
    options = [digits[:at] + digits[at + 1] + digits[at] + digits[at + 2 :] for at in places]
    left = [each for each in options if each != digits and each[0] != "0"]
    return chance.choice(left) if left else None


def _grouped(digits: str, commas: bool) -> str:
    if not commas:
        return digits
    whole, point, rest = digits.partition(".")
    return f"{int(whole):,}{point}{rest}"


def _respelt(written: str) -> str | None:
    if written.lower() in NUMBER_WORDS:
        return NUMBER_WORDS[written.lower()]
    if "," in written:
        return written.replace(",", "")
    if written in _WORD_OF:
        return _WORD_OF[written]
    return f"{int(written):,}" if written.isdigit() and int(written) >= 10_000 else None


def _ending(word: str) -> str:
    return next(ending for ending in _ENDINGS if word.endswith(ending))
