/**
 * The bundle that the loader imports.
 */

export { render } from "./view.js";
