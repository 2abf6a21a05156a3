/** Texts, numbers and dates in the language of the page. */

import { BASE } from './dom.js';

/** The language of the page, which the server chose by what the browser asks for. */
export const language = document.documentElement.lang;

const sections = await (await fetch(`${BASE}/locales/${language}.json`, { credentials: 'same-origin' })).json();
const plural = new Intl.PluralRules(language);
const formats = new Map();

/**
 * Returns a text.
 * @param {string} key `section.key`. A text with plural forms is an object of them, chosen by `values.count`.
 * @param {Object<string, string|number>} [values] What replaces `{name}`; numbers are written as the language does.
 * @returns {string}
 */
export function t(key, values = {}) {
  const [section, name] = key.split('.');
  const found = sections[section]?.[name];
  if (found === undefined) throw new Error(`no text ${key}`);
  const form = typeof found === 'string' ? found : (found[plural.select(values.count)] ?? found.other);
  return form.replace(/\{(\w+)\}/g, (_, each) => (typeof values[each] === 'number' ? number(values[each]) : values[each]));
}

/** Returns a number with at most so many digits after the point. */
export function number(value, digits = 0) {
  return format('n', digits, () => new Intl.NumberFormat(language, { maximumFractionDigits: digits })).format(value);
}

/** Returns a share, 0 to 1, in percent. */
export function percent(share, digits = 0) {
  const make = () => new Intl.NumberFormat(language, { style: 'percent', maximumFractionDigits: digits });
  return format('p', digits, make).format(share);
}

/** Returns a number of bytes in the unit that fits, binary as the settings count. */
export function bytes(count) {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let at = 0;
  for (; count >= 1024 && at < units.length - 1; at++) count /= 1024;
  return `${number(count, count < 10 && at > 0 ? 1 : 0)} ${units[at]}`;
}

/** Returns a time span of so many seconds in at most two units. */
export function duration(seconds) {
  if (seconds < 0.9995) return unit(Math.round(seconds * 1000), 'millisecond');
  if (seconds < 59.95) return unit(seconds < 10 ? Math.round(seconds * 10) / 10 : Math.round(seconds), 'second');
  const parts = [
    ['day', 86400],
    ['hour', 3600],
    ['minute', 60],
    ['second', 1],
  ];
  const first = parts.findIndex(([, size]) => seconds >= size);
  let left = Math.round(seconds);
  return parts
    .slice(first, first + 2)
    .map(([name, size]) => {
      const count = Math.floor(left / size);
      left -= count * size;
      return count ? unit(count, name) : '';
    })
    .filter(Boolean)
    .join(' ');
}

/** Returns a date with its time of day; takes ISO 8601 or milliseconds since 1970. */
export function dateTime(when) {
  const make = () => new Intl.DateTimeFormat(language, { dateStyle: 'medium', timeStyle: 'short' });
  return format('d', 0, make).format(new Date(when));
}

/** Returns how long ago something was; takes what `dateTime` takes. */
export function ago(when) {
  const seconds = (new Date(when) - Date.now()) / 1000;
  const [name, size] = [
    ['year', 31557600],
    ['month', 2629800],
    ['day', 86400],
    ['hour', 3600],
    ['minute', 60],
    ['second', 1],
  ].find(([, each]) => Math.abs(seconds) >= each) ?? ['second', 1];
  const make = () => new Intl.RelativeTimeFormat(language, { numeric: 'auto' });
  return format('a', 0, make).format(Math.round(seconds / size), name);
}

function unit(count, name) {
  const style = { style: 'unit', unit: name, unitDisplay: name === 'millisecond' || name === 'second' ? 'short' : 'long' };
  const make = () => new Intl.NumberFormat(language, { maximumFractionDigits: 1, ...style });
  return format(`u${name}`, 0, make).format(count);
}

function format(kind, digits, make) {
  const key = `${kind}${digits}`;
  if (!formats.has(key)) formats.set(key, make());
  return formats.get(key);
}
