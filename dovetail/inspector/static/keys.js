/** The keyboard: one table of keys, which the help shows too. */
import { panel, openPanel, selection } from "./store.js";
import { panels } from "./panels/index.js";
import { signal, useLayoutEffect, useRef } from "./html.js";

/** The key in front of K and Enter, as this system names it. */
export const CONTROL = /Mac|iP/.test(navigator.platform) ? "⌘" : "Ctrl ";

export const dialog = signal(null); // "palette", "help" or null
let before = null; // where the focus was

/** Open the palette or the help; the focus returns when it closes. */
export function openDialog(name) {
  before ??= document.activeElement;
  dialog.value = name;
}

export const closeDialog = () => (dialog.value = null);

export function returnFocus() {
  before?.focus?.();
  before = null;
}

/** When a part of the page closes that has the focus, give the focus back to where it was before. */
export function useFocusReturn(box) {
  useLayoutEffect(() => {
    const element = box.current;
    let from = document.activeElement;
    element.addEventListener("focusin", ({ relatedTarget: left }) => {
      if (left && !element.contains(left)) from = left;
    });
    return () => {
      if (!element.contains(document.activeElement)) return;
      (from?.isConnected ? from : document.querySelector(".middle")).focus();
    };
  }, []);
}

/**
 * Move the focus with a control that fields replace: to the first field, and back to the control.
 * Otherwise the focus would be nowhere, and what is typed next would be shortcuts. Args: `box`, a
 * ref to what holds both or to the one that is shown; `isOpen`, whether the fields are shown.
 */
export function useSwappedFocus(box, isOpen) {
  const was = useRef(isOpen);
  useLayoutEffect(() => {
    if (was.current === isOpen) return;
    was.current = isOpen;
    const inside = box.current.querySelector(isOpen ? "input" : "button") ?? box.current;
    inside.focus();
    inside.select?.();
  }, [isOpen]);
}

const visible = (selector) =>
  [...document.querySelectorAll(selector)].find((one) => one.offsetParent !== null);
const press = (action) => () => visible(`[data-key="${action}"]:not(:disabled)`)?.click();

/** Press the first button of the card or the editor that a field is in; otherwise the panel's. */
function submit(field) {
  const box = field.closest?.(".card, .editor");
  if (box) box.querySelector(".actions button")?.click();
  else press("c")();
}

function moveRow(event) {
  const list = visible(".wire .list:focus-within") ?? visible(".left .list") ?? visible(".list");
  list?.focus();
  list?.dispatchEvent(new KeyboardEvent("keydown", { key: event.key }));
}

function movePanel(step) {
  const all = panels();
  const at = all.findIndex((one) => one.id === panel.value);
  const next = all[(at + step + all.length) % all.length].id;
  openPanel(next, selection.value[next]);
}

export const KEYS = [
  [`${CONTROL}K`, "open the palette"],
  ["/", "filter the list", () => visible("main input[type=search]")?.focus()],
  ["j", "next row", moveRow],
  ["k", "previous row", moveRow],
  ["Enter", "open the row"],
  ["c", "call the tool, read the resource or get the prompt", press("c")],
  [`${CONTROL}Enter`, "the same from a field; in a question, answer it; in a message, send it"],
  ["r", "send the message again", press("r")],
  ["e", "edit the message and send it", press("e")],
  ["[", "previous panel", () => movePanel(-1)],
  ["]", "next panel", () => movePanel(1)],
  ["?", "show this help", () => openDialog("help")],
  ["Escape", "close, or leave a field"],
];
const TYPED_WITH_OPTION = "[]"; // on some keyboards
const BY_KEY = new Map(KEYS.map(([key, , handler]) => [key, handler]));

function handle(event) {
  const isField = event.target.closest?.("input, textarea, select");
  const isTyped =
    event.getModifierState?.("AltGraph") ||
    (event.altKey && !event.ctrlKey && TYPED_WITH_OPTION.includes(event.key));
  const hasControl = (event.metaKey || event.ctrlKey) && !isTyped;
  const hasModifier = hasControl || (event.altKey && !isTyped);
  if (hasControl && event.key.toLowerCase() === "k") openDialog("palette");
  else if (hasControl && event.key === "Enter") submit(event.target);
  else if (event.key === "Escape" && !dialog.value) event.target.blur?.();
  else if (hasModifier || isField || dialog.value || !BY_KEY.get(event.key)) return;
  else BY_KEY.get(event.key)(event);
  event.preventDefault();
}

export const listen = () => document.addEventListener("keydown", handle);
