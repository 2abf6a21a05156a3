"""Words of a follow-up that refer to the turns before it, by language.

Other languages need none: the weight of a question's words shows that it is incomplete.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from edge_rag.analysis.languages import FUNCTION_WORDS


@dataclass(frozen=True, slots=True)
class FollowUpWords:
    """Words of a language, in lower case.

    Attributes:
        pronouns: Refer to something named earlier, at any place.
        topics: Beginnings of a question that asks the same about something else, longest first.
        corrections: Beginnings of one that corrects the previous one, longest first.
    """

    pronouns: frozenset[str]
    pointers: frozenset[str]
    function: frozenset[str]
    asking: frozenset[str]
    topics: tuple[str, ...]
    corrections: tuple[str, ...]
    impersonal: tuple[str, ...] = ()
    capitalizes_nouns: bool = False


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


def _openings(text: str) -> tuple[str, ...]:
    return tuple(sorted((" ".join(each.split()) for each in text.split("/")), key=len, reverse=True))


FOLLOW_UP_WORDS: Final[Mapping[str, FollowUpWords]] = {
    "en": FollowUpWords(
        pronouns=_words(
            """
            he her hers him his it its itself she their theirs them these they this those
            """
        ),
        pointers=_words(
            """
            both one ones that there
            """
        ),
        function=FUNCTION_WORDS["en"]
        | _words(
            """
            called compare describe else explain far get give go goes good got great happen happened happens heard
            interesting kind kinds know like list long many may mean means might mind much must name need never
            often ok okay old one ones said say show sort sounds thanks think type types use used want yes
            """
        ),
        asking=_words(
            """
            are can could did do does had has have how if in is may must should was were what when where which who
            whom whose why will would
            """
        ),
        topics=_openings(
            """
            and / and at / and for / and how about / and in / and on / and the / and what about / and with / how
            about / or / same for / the same for / what about / what about for / what about in / what of
            """
        ),
        corrections=_openings(
            """
            actually i meant / i mean / i meant / i said / i was asking about / no / no i mean / no i meant / no i
            said / no i was asking about / no not / no the / not that / rather / sorry / sorry i mean / sorry i
            meant / wait i meant
            """
        ),
        impersonal=("it possible", "it necessary", "it take", "it rain"),
    ),
    "de": FollowUpWords(
        pronouns=_words(
            """
            dabei dadurch dafür dagegen damit daran darauf daraus darin davon dazu deren dessen dies diese diesem
            diesen dieser dieses dort er ihm ihn ihnen ihr ihre ihrem ihren ihrer ihres sein seine seinem seinen
            seiner seines sie
            """
        ),
        pointers=_words(
            """
            das dem den der die es
            """
        ),
        function=FUNCTION_WORDS["de"]
        | _words(
            """
            aber als also am auch beim bin bis bist bitte da danke darf dass denn du dürfen eigentlich gab gegen
            genannt gewesen groß hatte hatten heißen heißt hier ihr ja kein keine können lange mal mehr mich mir
            müssen nein noch nur ob ohne sehr seit so sollen um uns viel vom vor weil wem wen wenn weshalb
            wessen wieso will wir wofür woher wohin wollen womit woran worden worin wovon zwischen
            """
        ),
        asking=_words(
            """
            darf haben hat ist kann können muss müssen sind soll wann war waren warum was welche welchem welchen
            welcher welches wem wen wer werden weshalb wessen wie wieso wird wo wofür woher wohin womit
            """
        ),
        topics=_openings(
            """
            oder / und / und bei / und das / und der / und die / und für / und im / und in / und mit / und wie ist
            es mit / was ist mit / wie ist es bei / wie ist es mit / wie sieht es mit / wie steht es mit
            """
        ),
        corrections=_openings(
            """
            eigentlich meinte ich / entschuldigung / entschuldigung ich meine / entschuldigung ich meinte / ich
            meine / ich meinte / nein / nein ich meine / nein ich meinte / sorry / sorry ich meinte
            """
        ),
        impersonal=("gibt es", "es gibt", "gab es", "es möglich", "es nötig"),
        capitalizes_nouns=True,
    ),
    "es": FollowUpWords(
        pronouns=_words(
            """
            ahí allí ella ellas ello ellos esa esas ese esos esta estas este estos su sus suya suyo él
            """
        ),
        pointers=_words(
            """
            aquello eso esto
            """
        ),
        function=FUNCTION_WORDS["es"]
        | _words(
            """
            a adónde como cuando deben desde donde durante e entre eran estaba favor gracias haber había habían
            hace hacer hasta hizo le les llama llamaba llamado me mi muy nos pero porque pueden según ser si
            sido sin sobre sí también te tenía tiene tienen tras tu u veces vez ya
            """
        ),
        asking=_words(
            """
            adónde cuál cuáles cuándo cuánta cuántas cuánto cuántos cómo debe deben dónde era es está están fue hay
            puede pueden quién quiénes qué son
            """
        ),
        topics=_openings(
            """
            o / qué hay de / qué pasa con / qué tal / y / y con / y de / y el / y en / y la / y para / y qué hay de
            / y qué pasa con
            """
        ),
        corrections=_openings(
            """
            me refería a / me refiero a / no / no me refería a / no me refiero a / no quería decir / no quiero decir
            / no quise decir / perdón / perdón me refería a / perdón quería decir / quería decir / quiero decir /
            quise decir
            """
        ),
    ),
    "fr": FollowUpWords(
        pronouns=_words(
            """
            celle celles celui ces cet cette ceux elle elles eux il ils leur leurs lui
            """
        ),
        pointers=_words(
            """
            ceci cela en là y ça
            """
        ),
        function=FUNCTION_WORDS["fr"]
        | _words(
            """
            appelle aussi avaient avait avoir c cela cet chez depuis doit doivent elles en entre faire fait fois
            furent fut ils je leur leurs longtemps lui m mais me merci nommé non nous oui pendant peuvent plus
            sa sans ses si son sous souvent t te tu vers vous y à ça étaient être
            """
        ),
        asking=_words(
            """
            a combien comment doit doivent est faut ont où peut peuvent pourquoi quand que quel quelle quelles quels
            qui quoi sont était
            """
        ),
        topics=_openings(
            """
            et / et avec / et dans / et en / et la / et le / et les / et pour / et qu en est il de / ou / qu en est
            il de / qu en est il des / qu en est il du
            """
        ),
        corrections=_openings(
            """
            désolé je voulais dire / je parlais de / je veux dire / je voulais dire / non / non je parlais de / non
            je parle de / non je veux dire / non je voulais dire / pardon / pardon je voulais dire
            """
        ),
        impersonal=("y a", "il faut", "faut-il", "il possible"),
    ),
}
