"""How a question is shortened in a conversation, by language: pronouns, what stands before them, short questions.

These are the words with which the maker writes follow-ups. They were written before the rules that resolve follow-ups,
and nothing here is shared with them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final


@dataclass(frozen=True, slots=True)
class Pronouns:
    """Forms of one pronoun.

    Attributes:
        subject: As the subject; empty where the language leaves it out.
        object: Elsewhere.
        possessive: Before what belongs to it.
    """

    subject: str
    object: str
    possessive: str


@dataclass(frozen=True, slots=True)
class Grammar:
    """What the maker knows of a language; words are in lower case.

    Attributes:
        articles: Articles, each with the pronoun for what it stands before; None: as the name tells.
        prepositions: Words that a noun phrase can follow.
        places: Prepositions after which a name is a place, and its adverb.
        subject_after: Words before a subject: auxiliaries and interrogatives.
        function_words: Words that no noun phrase holds, beside those above.
        he: Words that show that a paragraph is about a man, his pronoun, then those of a woman and hers.
        it: Pronoun of a thing.
        they: Pronoun of things whose name has a plural article or ending; None: as the article tells.
        asking: Interrogative at the beginning of a question, and the short questions that it can be left as.
        topics: Ways to ask the same about something else; ``{}`` is what.
        corrections: Ways to say that something else was meant; ``{}`` is what.
        contracted: Prepositions that hold an article, and the preposition without it.
        verb_second: Whether what follows the verb of a question is its subject.
    """

    articles: Mapping[str, Pronouns | None]
    prepositions: frozenset[str]
    places: frozenset[str]
    there: str
    subject_after: frozenset[str]
    function_words: frozenset[str]
    he: tuple[frozenset[str], Pronouns]
    she: tuple[frozenset[str], Pronouns]
    it: Pronouns
    they: Pronouns | None
    asking: Mapping[str, tuple[str, ...]]
    topics: tuple[str, ...]
    corrections: tuple[str, ...]
    contracted: Mapping[str, str] = field(default_factory=dict)
    verb_second: bool = False


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_THEY_DE: Final = Pronouns("sie", "sie", "ihre")
_ER: Final = Pronouns("er", "ihn", "seine")
_ES: Final = Pronouns("es", "es", "seine")
_IHM: Final = Pronouns("ihm", "ihm", "seine")

GRAMMARS: Final[Mapping[str, Grammar]] = {
    "en": Grammar(
        articles={"the": None, "this": None, "these": None, "a": None, "an": None},
        prepositions=_words("of in for at by from to during on with about into after before under between through"),
        places=_words("in at"),
        there="there",
        subject_after=_words(
            "is are was were did do does has have had can could will would must should may and that when where why how "
            "what which who if whether because"
        ),
        function_words=_words(
            "it its be been being not as or than there their his her he she they them who whom whose most many "
            "much more long often"
        ),
        he=(_words("he his him"), Pronouns("he", "him", "his")),
        she=(_words("she her hers"), Pronouns("she", "her", "her")),
        it=Pronouns("it", "it", "its"),
        they=Pronouns("they", "them", "their"),
        asking={
            "when": ("When?", "When was that?", "And when?"),
            "in what year": ("In what year?", "What year was that?"),
            "what year": ("In what year?", "When was that?"),
            "where": ("Where?", "Where was that?", "And where?"),
            "who": ("Who?", "Who was it?", "And who?"),
            "why": ("Why?", "Why is that?", "And why?"),
            "how many": ("How many?", "How many of them?", "And how many?"),
            "how much": ("How much?", "And how much?"),
            "how often": ("How often?",),
            "how long": ("How long?", "And how long?"),
            "how": ("How?", "How is that?"),
        },
        topics=("What about {}?", "And {}?", "How about {}?", "and for {}?"),
        corrections=("No, I meant {}.", "Sorry, I meant {}.", "no, {}", "I mean {}"),
    ),
    "de": Grammar(
        articles={
            "der": _ER,
            "die": _THEY_DE,
            "das": _ES,
            "den": _ER,
            "dem": _IHM,
            "diese": _THEY_DE,
            "dieser": _ER,
            "dieses": _ES,
        },
        prepositions=_words("von in für bei durch aus zu während auf mit über nach vor unter zwischen an um"),
        places=_words("in"),
        there="dort",
        subject_after=_words(
            "ist sind war waren wurde wurden hat haben hatte hatten kann konnte wird werden muss soll und dass wann wo "
            "warum wie was welche welcher welches wer"
        ),
        function_words=_words(
            "ein eine einen einem einer eines es er sie sich nicht als oder zur zum im am vom beim ins viele viel "
            "lange des seine seiner ihr ihre"
        ),
        he=(_words("er sein seine seinen seiner"), Pronouns("er", "ihm", "seine")),
        she=(_words("ihr ihre ihren ihrer"), Pronouns("sie", "ihr", "ihre")),
        it=_ES,
        they=None,
        asking={
            "wann": ("Wann?", "Wann war das?", "Und wann?"),
            "in welchem jahr": ("In welchem Jahr?", "Wann war das?"),
            "wo": ("Wo?", "Und wo?", "Wo war das?"),
            "wer": ("Wer?", "Wer war das?", "Und wer?"),
            "warum": ("Warum?", "Warum ist das so?", "Und warum?"),
            "wie viele": ("Wie viele?", "Wie viele davon?", "Und wie viele?"),
            "wie viel": ("Wie viel?", "Und wie viel?"),
            "wie lange": ("Wie lange?", "Und wie lange?"),
            "wie": ("Wie?", "Und wie?"),
        },
        topics=("Und {}?", "Wie ist es mit {}?", "Was ist mit {}?"),
        corrections=("Nein, ich meinte {}.", "Entschuldigung, ich meine {}.", "nein, {}"),
        verb_second=True,
    ),
    "es": Grammar(
        articles={
            "el": Pronouns("", "él", "su"),
            "la": Pronouns("", "ella", "su"),
            "los": Pronouns("", "ellos", "su"),
            "las": Pronouns("", "ellas", "su"),
            "este": Pronouns("", "él", "su"),
            "esta": Pronouns("", "ella", "su"),
        },
        prepositions=_words("de en para por desde a durante sobre con tras hacia entre según del al"),
        places=_words("en"),
        there="allí",
        subject_after=frozenset(),
        function_words=_words(
            "un una unos unas se no que qué como cómo cuál cuáles quién quiénes dónde cuándo cuánto cuántos cuántas y "
            "o es son era eran fue fueron ha han había su sus más lo"
        ),
        he=(_words("él"), Pronouns("", "él", "su")),
        she=(_words("ella"), Pronouns("", "ella", "su")),
        it=Pronouns("", "él", "su"),
        they=None,
        asking={
            "cuándo": ("¿Cuándo?", "¿Cuándo fue eso?", "¿Y cuándo?"),
            "en qué año": ("¿En qué año?", "¿En qué año fue?"),
            "dónde": ("¿Dónde?", "¿Y dónde?"),
            "quién": ("¿Quién?", "¿Quién fue?", "¿Y quién?"),
            "por qué": ("¿Por qué?", "¿Y por qué?"),
            "cuántos": ("¿Cuántos?", "¿Cuántos de ellos?", "¿Y cuántos?"),
            "cuántas": ("¿Cuántas?", "¿Y cuántas?"),
            "cuánto": ("¿Cuánto?", "¿Y cuánto?"),
            "cómo": ("¿Cómo?", "¿Y cómo?"),
        },
        topics=("¿Y {}?", "¿Qué hay de {}?"),
        corrections=("No, me refería a {}.", "Perdón, quería decir {}.", "no, {}"),
        contracted={"del": "de", "al": "a"},
    ),
}
