import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_rag.generator.citations.claims import Quantity, claims_of


def agrees(claim: str, support: str) -> bool:
    return claims_of(claim).supported_by(claims_of(support))


@pytest.mark.parametrize(
    ("claim", "support"),
    [
        ("Greased every 2,000 hours.", "Greased every 2000 operating h."),
        ("It takes 2.50 litres.", "It takes 2,5 l."),
        ("It takes 2.5 bar.", "At 2.50 bar."),
        ("Wait three minutes.", "Wait 3 min."),
        ("Wait 3 min.", "Wait three minutes."),
        ("At -5 °C it freezes.", "It freezes at −5 degrees, that is -5 °C."),
        ("It draws 12A.", "The current is 12 ampere."),
        ("One of the pumps runs.", "A pump runs."),
        ("Pump P2 runs.", "There P2 runs."),
        ("It does not start.", "It doesn't start."),
        ("Use grease from Kawann.", "KAWANN makes grease."),
        ("It costs $5.", "It costs 5 dollars."),
        ("Die Last ist 1.234,5 kg.", "Die Last ist 1,234.5 kg."),
        ("Масса 12,5 кг.", "Its mass is 12.5 kg."),
        ("Alle 2.000 h.", "Alle 2000 h."),
        ("It is 12,5 mm.", "It is １２．５ mm."),
        ("يفتح عند 2.5 bar", "يفتح عند ٢٫٥ bar"),
        ("Valid from 2024-05-03.", "Valid from 3.5.2024."),
        ("2024年5月3日.", "2024-05-03."),
        ("Version 1.2.3 runs.", "Version 1.2.3 runs."),
    ],
)
def test_different_spellings_make_the_same_claim(claim: str, support: str) -> None:
    assert agrees(claim, support)


@pytest.mark.parametrize(
    ("claim", "support"),
    [
        ("Greased every 200 hours.", "Greased every 2,000 hours."),
        ("Greased every 2,000 days.", "Greased every 2,000 hours."),
        ("It takes 25 litres.", "It takes 2.5 litres."),
        ("It takes 5 kg.", "It takes 5 g."),
        ("Es sind 1.234,5 kg.", "Es sind 12,345 kg."),
        ("Valid from 2024-05-03.", "Valid from 5.3.2024."),
        ("Version 3.2.1 runs.", "Version 1.2.3 runs."),
        ("At 5 °C it freezes.", "It freezes at -5 °C."),
        ("Wait four minutes.", "Wait 3 minutes."),
        ("Pump P1 runs.", "Pump P2 runs."),
        ("Call Hale first.", "Call Miller first."),
        ("It must be opened.", "It must not be opened."),
        ("It must not be opened.", "It must be opened."),
        ("It won't start.", "It will start."),
        ("Run it below 32 hertz.", "Run it above 32 hertz."),
        ("Use at most 5 g.", "Use at least 5 g."),
        ("Open the left valve.", "Open the right valve."),
        ("Switch it on.", "Switch it off."),
    ],
)
def test_a_changed_claim_is_not_supported(claim: str, support: str) -> None:
    assert not agrees(claim, support)


@given(st.integers(0, 10**9))
def test_separators_make_no_difference_to_a_number(number: int) -> None:
    ((one,), (other,)) = (claims_of(f"{each} bolts").quantities for each in (f"{number:,}", number))
    assert one >= other == {(str(number), "")}


@pytest.mark.parametrize(
    ("claim", "support", "mark", "supported"),
    [
        ("It is 1.234 mm.", "It is 1.234 mm.", ".", True),
        ("It is 1.234 mm.", "It is 1.234 mm.", ",", True),
        ("It is 1234 mm.", "It is 1.234 mm.", ".", False),
        ("It is 1234 mm.", "It is 1.234 mm.", ",", True),
        ("It is 1234 mm.", "It is 1.234 mm.", "", True),
        ("It is 1,234 mm.", "Es sind 1.234 mm.", ",", True),
        ("It is 1,234 mm.", "It is 1234 mm.", ".", True),
        ("It is 1,2340 mm.", "Es sind 1.234 mm.", ",", False),
        ("It is 1,2340 mm.", "It is 1.234 mm.", ".", True),
    ],
)
def test_a_number_that_may_be_two_is_read_as_its_document_writes_numbers(
    claim: str, support: str, mark: str, supported: bool
) -> None:
    assert claims_of(claim).supported_by(claims_of(support, mark)) is supported


@given(st.text())
def test_every_text_supports_itself(text: str) -> None:
    claims = claims_of(text)
    assert claims.supported_by(claims)
    assert all(isinstance(quantity, Quantity) for readings in claims.quantities for quantity in readings)
