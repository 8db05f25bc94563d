// The service: requests with the token if one is needed, and the stream of events.

let token = sessionStorage.getItem("wgpr-token") ?? "";
let asking = null; // the question for the token while its dialog is open: one for all requests that were refused

async function askForToken() {
  const dialog = document.querySelector("#token");
  const input = dialog.querySelector("input");
  input.value = "";
  dialog.showModal();
  await new Promise((resolve) => dialog.addEventListener("close", resolve, { once: true }));
  token = input.value;
  sessionStorage.setItem("wgpr-token", token);
}

/** A request to the service. Answers other than 401 are returned as they are. */
export async function request(path, { headers = {}, ...options } = {}) {
  const sent = token;
  const response = await fetch(path, {
    ...options,
    headers: sent ? { ...headers, Authorization: `Bearer ${sent}` } : headers,
  });
  if (response.status !== 401) return response;
  if (token === sent) await (asking ??= askForToken().finally(() => { asking = null; }));
  return request(path, { headers, ...options });
}

/** The JSON at a path; null if there is none (yet), or no connection. */
export async function getJson(path, options) {
  try {
    const response = await request(path, options);
    return response.ok ? await response.json() : null;
  } catch {
    return null;
  }
}

export function mapPath(name, rest = "") {
  return `maps/${encodeURIComponent(name)}${rest}`;
}

/** Calls `receive(kind, data)` for each event, and `changed(isConnected)`. Goes on after the last one seen. */
export async function listen(receive, changed) {
  let lastId = "";
  for (;;) {
    try {
      const response = await request("events", { headers: lastId ? { "Last-Event-ID": lastId } : {}, cache: "no-store" });
      if (!response.ok) throw new Error(`status ${response.status}`);
      changed(true);
      let text = "";
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      for (let part = await reader.read(); !part.done; part = await reader.read()) {
        const events = (text + part.value).split("\n\n");
        text = events.pop();
        for (const event of events) {
          const fields = Object.fromEntries(event.split("\n").map((line) => line.split(/: ?(.*)/s)));
          lastId = fields.id ?? lastId;
          if (fields.event) receive(fields.event, JSON.parse(fields.data));
        }
      }
    } catch (error) {
      if (!(error instanceof TypeError)) console.warn("events:", error.message);
    }
    changed(false);
    await new Promise((resolve) => setTimeout(resolve, 1000));
  }
}
