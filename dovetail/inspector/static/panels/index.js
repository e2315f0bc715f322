/**
 * The panels, in the order of their tabs. A row: `id`; `title`; `load()`, the module, which exports
 * `Main` (the middle column) and may export `List` (the left column); `badge()`, a number or nothing.
 */
import { lists, questions } from "../store.js";

export const PANELS = [
  {
    id: "tools",
    title: "Tools",
    load: () => import("./tools.js"),
    badge: () => lists.value.tools?.length,
  },
  {
    id: "resources",
    title: "Resources",
    load: () => import("./resources.js"),
    badge: () => lists.value.resources?.length,
  },
  {
    id: "prompts",
    title: "Prompts",
    load: () => import("./prompts.js"),
    badge: () => lists.value.prompts?.length,
  },
  {
    id: "questions",
    title: "Questions",
    load: () => import("./questions.js"),
    badge: () => questions.value.length || undefined,
  },
  { id: "checks", title: "Checks", load: () => import("./checks.js") },
  { id: "log", title: "Log", load: () => import("./log.js") },
];
