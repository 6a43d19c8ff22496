export interface Options {
  method?: string;
  headers?: Record<string, string>;
  body?: string | Uint8Array;
  /** Maximum size of the body of the response, in bytes; by default 8 MiB. */
  maxBody?: number;
}
export interface Response {
  readonly status: number;
  /** Headers, by their names in lower case. */
  readonly headers: Readonly<Record<string, string>>;
  readonly bytes: Uint8Array;
  text(): string;
  json(): any;
}
/** Sends a request and waits for the whole response. */
export function request(url: string, options?: Options): Response;
