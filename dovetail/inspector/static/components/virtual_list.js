/** A list of rows of one height, of which only those in view are in the document. */
import { html, useLayoutEffect, useRef, useState } from "../html.js";
import { failures, openPanel, selection, whyEmpty } from "../store.js";
import { Text } from "./text.js";

const ROW = 28;
const EXTRA = 8; // rows above and below the view

/**
 * Args: `rows`; `height` of a row in pixels; `render(row, index)`, the content of a row; `keyOf(row)`;
 * `selected` (a key); `onSelect(row)` when the cursor moves; `onOpen(row)` on Enter or a click;
 * `label`; `follow`, to stay at the end while rows are added; `isHeading(row)`, rows that are skipped.
 */
export function VirtualList(props) {
  const { rows, height, render, keyOf, selected, onSelect, onOpen, label, follow, isHeading } =
    props;
  const box = useRef(null);
  const atEnd = useRef(true);
  const [{ top, room }, setWindow] = useState({ top: 0, room: 600 });
  const chosen = selected === undefined ? -1 : rows.findIndex((row) => keyOf(row) === selected);

  const look = () => {
    const { scrollTop, clientHeight, scrollHeight } = box.current;
    if (!clientHeight) return; // it is hidden, and not scrolled
    atEnd.current = scrollTop + clientHeight >= scrollHeight - height;
    setWindow((old) =>
      old.top === scrollTop && old.room === clientHeight
        ? old
        : { top: scrollTop, room: clientHeight },
    );
  };
  const stay = () => {
    if (follow && atEnd.current) box.current.scrollTop = box.current.scrollHeight;
    look();
  };
  useLayoutEffect(() => {
    const observer = new ResizeObserver(stay);
    observer.observe(box.current);
    return () => observer.disconnect();
  }, []);
  useLayoutEffect(stay);

  const show = (index) => {
    const list = box.current;
    if (index * height < list.scrollTop) list.scrollTop = index * height;
    else if ((index + 1) * height > list.scrollTop + list.clientHeight)
      list.scrollTop = (index + 1) * height - list.clientHeight;
  };
  const move = (from, step) => {
    let index = from;
    while (rows[index] && isHeading?.(rows[index])) index += step;
    if (!rows[index]) return;
    show(index);
    (onSelect ?? onOpen)(rows[index]);
  };
  const steps = {
    ArrowDown: () => move(chosen + 1, 1),
    j: () => move(chosen + 1, 1),
    ArrowUp: () => move(chosen < 0 ? rows.length - 1 : chosen - 1, -1),
    k: () => move(chosen < 0 ? rows.length - 1 : chosen - 1, -1),
    Home: () => move(0, 1),
    End: () => move(rows.length - 1, -1),
    Enter: () => rows[chosen] && onOpen(rows[chosen]),
  };
  const press = (event) => {
    if (event.metaKey || event.ctrlKey || event.altKey || !steps[event.key]) return;
    event.preventDefault();
    event.stopPropagation();
    steps[event.key]();
  };

  const first = Math.max(0, Math.floor(top / height) - EXTRA);
  const end = Math.min(rows.length, Math.ceil((top + room) / height) + EXTRA);
  const shown = rows.slice(first, end).map((row, offset) => {
    const index = first + offset;
    const place = { position: "absolute", top: `${index * height}px`, height: `${height}px` };
    if (isHeading?.(row))
      return html`<div key=${`h${index}`} class="row heading" role="presentation" style=${place}>
        ${render(row, index)}
      </div>`;
    return html`<div
      key=${keyOf(row)}
      id=${`${props.id}-${index}`}
      class="row"
      role="option"
      aria-selected=${index === chosen}
      aria-setsize=${rows.length}
      aria-posinset=${index + 1}
      style=${place}
      onClick=${() => onOpen(row)}>
      ${render(row, index)}
    </div>`;
  });
  const isShown = chosen >= first && chosen < end;
  return html`<div
    id=${props.id}
    ref=${box}
    class="list"
    role=${rows.length ? "listbox" : "presentation"}
    aria-label=${rows.length ? label : undefined}
    tabindex=${rows.length ? 0 : -1}
    aria-activedescendant=${isShown ? `${props.id}-${chosen}` : undefined}
    onScroll=${look}
    onKeyDown=${press}>
    <div class="list-space" role="presentation" style=${{ height: `${rows.length * height}px` }}>
      ${shown}
    </div>
  </div>`;
}

/** The items whose name, title or description contains some words. */
export const filterItems = (items, words) =>
  (items ?? []).filter(({ name, title, description }) =>
    [name, title, description].some(
      (one) => !words || (typeof one === "string" && one.toLowerCase().includes(words)),
    ),
  );

/**
 * What a server lists: a filter, the rows, why a list could not be read, and why there are no rows.
 * Args: `id` of the panel; `noun`, what an item is; `filter`, a signal; `placeholder` of its field;
 * `of`, the names of the lists; `rows`, `keyOf`, `selected`, `isHeading` and `render` as above.
 */
export function FilteredList({ id, noun, filter, placeholder, of = [id], ...list }) {
  const { rows, keyOf } = list;
  const asked = `Filter ${noun}s`;
  const failed = of.filter((one) => failures.value[one]);
  return html`<input
      type="search"
      class="filter"
      aria-label=${placeholder ?? asked}
      placeholder=${`${placeholder ?? asked}  /`}
      value=${filter.value}
      onInput=${(event) => (filter.value = event.target.value)} />
    ${failed.map((one) => html`<p class="error pad">${one !== id && "Templates: "}<${Text} max=${500}>${failures.value[one]}<//></p>`)}
    <${VirtualList}
      id=${id}
      label=${`${noun[0].toUpperCase()}${noun.slice(1)}s`}
      height=${ROW}
      onSelect=${(row) => (selection.value = { ...selection.value, [id]: keyOf(row) })}
      onOpen=${(row) => openPanel(id, keyOf(row))}
      ...${list} />
    ${!rows.length && html`<p class="empty pad">${whyEmpty(of, noun, filter.value.trim())}</p>`}`;
}
