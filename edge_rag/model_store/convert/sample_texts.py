"""Texts that an encoder is compared with its original on: short and long, upper and lower case, beyond ASCII."""

from __future__ import annotations

from typing import Final

QUESTIONS: Final = (
    "oil",
    "how often",
    "Where is the valve?",
    "How often must the bearings of the pump be greased?",
    "What does the operator do when the gas alarm sounds during maintenance?",
)

PASSAGES: Final = (
    "a",
    "the pump",
    "close the valve",
    "EVERY 2,000 HOURS",
    "Résumé: 4 µm filter, −20 °C to +55 °C – naïve café 東京.",
    "Grease both bearings every 2,000 operating hours, or every three months, whichever comes first.",
    "The spare impeller is kept on shelf 4 of the store room; its part number is 7720-118.",
    "The relief valve on the discharge side opens at 11 bar. If it opens during normal operation, stop the pump, let "
    "the line cool below 40 degrees, and have the pressure transmitter checked before the pump is started again.",
    "Leave the building by the shortest way, close no door behind you that others may need, and call the control room "
    "from outside. Nobody goes back in before the air has been measured twice, ten minutes apart, by somebody who was "
    "trained for it; the readings are written into the log with the time and the name. " * 4,
)
