/**
 * The panels, in the order of their tabs. A row: `id`; `title`; `load()`, the module, which exports
 * `Main` (the middle column) and may export `List` (the left column); `badge()`, a number or nothing;
 * `isRecorded()`, whether there is something to show of a recording, which has no server.
 */
import { isRecording, lists, panel, questions, snapshot, tasks } from "../store.js";

const OVER = ["completed", "failed", "cancelled", "unknown"];
const countOpen = () =>
  [...tasks.value.values()].filter((one) => !OVER.includes(one.status)).length;

const hasList =
  (...names) =>
  () =>
    names.some((name) => lists.value[name]);

/** The panels that can be opened, and the one that is. */
export const panels = () =>
  isRecording.value ? PANELS.filter((one) => one.isRecorded?.()) : PANELS;
export const openedPanel = () => panels().find((one) => one.id === panel.value) ?? panels()[0];

const PANELS = [
  {
    id: "tools",
    title: "Tools",
    load: () => import("./tools.js"),
    badge: () => lists.value.tools?.length,
    isRecorded: hasList("tools"),
  },
  {
    id: "resources",
    title: "Resources",
    load: () => import("./resources.js"),
    badge: () => lists.value.resources?.length,
    isRecorded: hasList("resources", "templates"),
  },
  {
    id: "prompts",
    title: "Prompts",
    load: () => import("./prompts.js"),
    badge: () => lists.value.prompts?.length,
    isRecorded: hasList("prompts"),
  },
  { id: "skills", title: "Skills", load: () => import("./skills.js") },
  {
    id: "questions",
    title: "Questions",
    load: () => import("./questions.js"),
    badge: () => questions.value.length || undefined,
  },
  {
    id: "tasks",
    title: "Tasks",
    load: () => import("./tasks.js"),
    badge: () => countOpen() || undefined,
  },
  { id: "apps", title: "Apps", load: () => import("./apps.js") },
  { id: "compare", title: "Compare", load: () => import("./compare.js") },
  { id: "login", title: "Login", load: () => import("./login.js") },
  { id: "checks", title: "Checks", load: () => import("./checks.js") },
  { id: "log", title: "Log", load: () => import("./log.js"), isRecorded: () => true },
  {
    id: "saved",
    title: "Saved",
    load: () => import("./saved.js"),
    badge: () => snapshot.value.saved?.calls?.length || undefined,
  },
  {
    id: "timeline",
    title: "Timeline",
    load: () => import("./timeline.js"),
    isRecorded: () => true,
  },
  { id: "load", title: "Load", load: () => import("./load.js") },
];
