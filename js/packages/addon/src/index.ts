export {
  type ConnectionTarget,
  type ConnectOptions,
  SandboxAddon,
  type SandboxAddonOptions,
  type WebSocketUrlParams,
} from "./addon.js";
export type { ConnectionState, Size } from "./connection.js";
export { type Environment, pageEnvironment, type Socket, type Timers } from "./environment.js";
export { TerminalError, type TerminalErrorCode, TerminalExitedError } from "./errors.js";
export type { TerminalExit } from "./protocol.js";
