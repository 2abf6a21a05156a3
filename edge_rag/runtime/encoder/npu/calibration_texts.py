"""Texts that show how large activations get: of many subjects and kinds, short and long, beyond English and ASCII."""

from __future__ import annotations

from typing import Final

QUESTIONS: Final = (
    "oil",
    "How often must the bearings of the pump be greased?",
    "Who signed the treaty, and in which year was it ratified?",
    "What does the operator do when the gas alarm sounds during maintenance?",
    "why is the sky blue",
    "Wie hoch ist der Druck im Kessel?",
    "Which of the two methods loses more energy as heat?",
    "error 0x80070057 when mounting /dev/sda1",
)

PASSAGES: Final = (
    "a",
    "EVERY 2,000 HOURS!",
    "Résumé: 4 µm filter, −20 °C to +55 °C – naïve café 東京 😀.",
    "Grease both bearings every 2,000 operating hours, or every three months, whichever comes first. Use lithium "
    "grease, and wipe off what comes out at the seals. The amount is stamped on the plate beside each nipple.",
    "The treaty was signed by eleven states in the spring of 1648 and ended a war of thirty years. Historians disagree "
    "on whether it founded the order of sovereign states, since several of its clauses merely confirmed older rights.",
    "Light that falls on molecules of air is scattered the more, the shorter its waves are; blue is scattered about "
    "four times as much as red. Near the horizon the path through the air is longer, and little of the blue is left.",
    "def area(width: float, height: float) -> float:\n    return width * height  # no check: sizes may be negative",
    "| part | number | torque |\n|---|---|---|\n| M8 bolt | 7720-118 | 25 Nm |\n| M10 bolt | 7720-121 | 49 Nm |",
    "Der Kessel wird mit höchstens 6 bar betrieben. Steigt der Druck darüber, öffnet das Sicherheitsventil, und die "
    "Anlage muss abkühlen, bevor sie wieder angefahren wird.",
    "La bibliothèque ouvre à neuf heures du matin et ferme à dix-huit heures, sauf le dimanche et les jours fériés.",
    "Shares of the company fell by 4.3% to $27.15 on Tuesday after it said that its revenue, $1.2 billion in the third "
    "quarter, would not grow before next year; analysts had expected $1.35 billion, Smith & Sons told Reuters.",
    'She had not spoken for so long that when she did, everybody in the kitchen turned round. "It is the river," she '
    'said. "It has always been the river." Nobody asked her what she meant, and the clock went on over the stove.',
    "Photosynthesis takes place in two steps. In the first, chlorophyll absorbs light and water is split into oxygen, "
    "protons and electrons. In the second, the Calvin cycle, carbon dioxide is bound by an enzyme and turned into "
    "sugar. The enzyme also binds oxygen, which costs plants about a quarter of what they gain; some, maize too, avoid "
    "that by binding carbon dioxide first in other cells and handing it on, at the price of more light and water.",
)
