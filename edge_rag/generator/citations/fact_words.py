"""English words that can be checked by their form: numbers, units, negations, contraries."""

from __future__ import annotations

from typing import Final

_SMALL_NUMBERS = """
zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen
nineteen twenty
"""
_TENS = """
thirty forty fifty sixty seventy eighty ninety
"""
_UNIT_NAMES = """
s sec secs second seconds
min mins minute minutes
h hr hrs hour hours
day days
week weeks
month months
year years
mm millimetre millimetres millimeter millimeters
cm centimetre centimetres centimeter centimeters
m metre metres meter meters
km kilometre kilometres kilometer kilometers
ft foot feet
mile miles
mg milligram milligrams
g gram grams gramme grammes
kg kilogram kilograms kilo kilos
t tonne tonnes ton tons
ml millilitre millilitres milliliter milliliters
l L litre litres liter liters
bar bars
mbar millibar
Pa pascal pascals
kPa kilopascal kilopascals
MPa megapascal megapascals
psi
°C °c degC Celsius celsius
°F Fahrenheit fahrenheit
V volt volts
kV kilovolt kilovolts
A amp amps ampere amperes
mA milliamp milliamps milliampere milliamperes
W watt watts
kW kilowatt kilowatts
MW megawatt megawatts
Hz hertz
kHz kilohertz
rpm
Nm
dB decibel decibels
% percent
ppm
€ euro euros
$ dollar dollars
£ pound pounds
"""
_NEGATION_WORDS = """
not no never none nobody nothing nowhere neither nor without cannot except unless hardly
"""
_CONTRARY_PAIRS = """
above/below over/under before/after more/less most/least maximum/minimum higher/lower open/close opened/closed
increase/decrease increases/decreases left/right on/off first/last start/stop started/stopped always/sometimes all/some
upper/lower hot/cold wet/dry full/empty north/south east/west
"""

NUMBER_WORDS: Final = {word: str(number) for number, word in enumerate(_SMALL_NUMBERS.split())} | {
    word: str(10 * number) for number, word in enumerate(_TENS.split(), 3)
}
"""The digits of a number that is one word, lower case."""

UNITS: Final = {name: line.split()[0] for line in _UNIT_NAMES.strip().splitlines() for name in line.split()}
"""The first name of a unit, by each of its names as they are written."""

NEGATIONS: Final = frozenset(_NEGATION_WORDS.split())
"""Words that turn what is said, lower case; without the contracted ones."""

CONTRARIES: Final = tuple((pair.split("/")[0], pair.split("/")[1]) for pair in _CONTRARY_PAIRS.split())
"""Pairs of words of which one says the contrary of the other, lower case."""
