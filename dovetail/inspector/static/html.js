/** The libraries of the page, in one import. */
import { h } from "preact";
import htm from "htm";

export { render } from "preact";
export {
  useEffect,
  useErrorBoundary,
  useLayoutEffect,
  useMemo,
  useRef,
  useState,
} from "preact/hooks";
export { batch, computed, effect, signal } from "@preact/signals";

export const html = htm.bind(h);

/** Join the names of classes; those that are false are left out. */
export const classes = (...names) => names.filter(Boolean).join(" ");
