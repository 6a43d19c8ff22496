// All checks by their names, in the order in which they run.
import { conversation } from "./conversation.mjs";
import { views } from "./views.mjs";

export const checks = { ...conversation, ...views };
