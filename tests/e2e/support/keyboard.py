"""What the keyboard reaches on a page, and what a screen reader is told."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from playwright.sync_api import Page

MOST_STOPS: Final = 400

_STOPS: Final = """() => {
    const controls = 'a[href], button, input, select, textarea, summary, [tabindex], [contenteditable=true]';
    const name = each => (each.getAttribute('aria-label') || each.labels?.[0]?.textContent || each.textContent
        || each.title || each.id || '').trim().replace(/\\s+/g, ' ').slice(0, 60);
    window.stopName = each => `${each.tagName.toLowerCase()} ${name(each)}`;
    const modal = document.querySelector('dialog[open]:modal');
    const groups = new Set();
    return [...(modal ?? document).querySelectorAll(controls)].filter(each => {
        if (each.disabled || each.tabIndex < 0 || each.type === 'hidden' || each.closest('[inert]')) return false;
        if (!each.checkVisibility({ visibilityProperty: true })) return false;
        if (each.matches('details:not([open]) *') && !each.matches('summary')) return false;
        if (each.type === 'radio') {
            // Tab goes to one of a group, arrow keys to the others.
            if (groups.has(each.name)) return false;
            groups.add(each.name);
            return true;
        }
        return true;
    }).map(window.stopName);
}"""

_FOCUS: Final = """() => {
    const at = document.activeElement;
    if (!at || at === document.body) return null;
    const style = getComputedStyle(at);
    const box = at.getBoundingClientRect();
    const points = [[0.5, 0.5], [0.1, 0.5], [0.9, 0.5], [0.5, 0.1], [0.5, 0.9]];
    const inside = points
        .map(([x, y]) => document.elementFromPoint(box.left + x * box.width, box.top + y * box.height))
        .some(hit => hit && (at.contains(hit) || hit.closest('label')?.control === at));
    return {
        name: window.stopName(at),
        marked: style.outlineStyle !== 'none' || style.boxShadow !== 'none',
        seen: inside,
        first: (window.firstStop ??= at) === at,
    };
}"""

_FROM_THE_TOP: Final = """() => {
    const top = document.querySelector('dialog[open]:modal') ?? document.body;
    const before = top.getAttribute('tabindex');
    top.tabIndex = -1;
    top.focus();
    if (before === null) top.removeAttribute('tabindex');
    scrollTo(0, 0);
    window.firstStop = undefined;
}"""


@dataclass(frozen=True)
class Walk:
    """What the key Tab came by, from the top of the page to its end.

    Attributes:
        reached: Controls that had the focus, as tag and name.
        missed: Controls that can be used and never had it.
        unmarked: Controls whose focus cannot be seen.
        hidden: Controls that something else covered while they had it.
    """

    reached: Sequence[str]
    missed: Sequence[str]
    unmarked: Sequence[str]
    hidden: Sequence[str]


def walk(page: Page) -> Walk:
    """Presses Tab until the focus has been on everything."""
    expected: list[str] = page.evaluate(_STOPS)
    page.evaluate(_FROM_THE_TOP)
    reached, unmarked, hidden = [], [], []
    for pressed in range(MOST_STOPS):
        page.keyboard.press("Tab")
        focus = page.evaluate(_FOCUS)
        if focus is None or (pressed and focus["first"]):
            if pressed:
                break
            continue
        reached.append(focus["name"])
        if not focus["marked"]:
            unmarked.append(focus["name"])
        if not focus["seen"]:
            hidden.append(focus["name"])
    # What shows live figures may have lost or gained a control meanwhile.
    left: list[str] = page.evaluate(_STOPS)
    missed = [name for name in expected if name in left and name not in reached]
    return Walk(reached, missed, unmarked, hidden)


def listen(page: Page) -> None:
    """Records what screen readers are told from now on."""
    page.evaluate("""() => {
        window.announced = [];
        const note = records => {
            for (const { addedNodes } of records) {
                for (const node of addedNodes) window.announced.push(node.textContent.trim());
            }
        };
        const options = { childList: true, subtree: true, characterData: true };
        const regions = document.querySelectorAll('[aria-live]');
        for (const region of regions) new MutationObserver(note).observe(region, options);
    }""")


def announced(page: Page) -> list[str]:
    texts: list[str] = page.evaluate("() => window.announced")
    return texts
