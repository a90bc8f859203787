// page.hpp - the page that makes a browser a client of this server.
#pragma once
#include <string_view>

namespace websocket_server {

inline constexpr std::string_view page = R"html(<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>idlewheel echo</title>
<link rel="icon" href="data:,">
<style>
  :root { color-scheme: light dark; }
  body { font: 1rem/1.5 system-ui, sans-serif; max-width: 36rem; margin: 2rem auto; padding: 0 1rem; }
  form { display: flex; gap: .5rem; }
  input { flex: 1; min-width: 0; }
  input, button { font: inherit; padding: .4rem .6rem; }
  #state { font-weight: 600; }
  #log { list-style: none; padding: 0; overflow-wrap: anywhere; }
</style>
</head>
<body>
<h1>Echo</h1>
<p>The connection is <span id="state" role="status">connecting</span>.</p>
<form id="say">
  <input id="text" autocomplete="off" aria-label="Say something" placeholder="Say something" autofocus>
  <button>Send</button>
</form>
<p>Say nothing for a while: your browser goes on answering pings, and the server still tells
that from a browser which is gone.</p>
<ul id="log" aria-live="polite"></ul>
<script>
  const at = id => document.getElementById(id);
  const note = text => {
    const line = document.createElement("li");
    line.textContent = new Date().toLocaleTimeString() + "  " + text;
    at("log").prepend(line);
  };
  let socket;
  const connect = () => {
    at("state").textContent = "connecting";
    const scheme = location.protocol === "https:" ? "wss://" : "ws://";
    socket = new WebSocket(scheme + location.host + "/echo");
    socket.onopen = () => { at("state").textContent = "open"; };
    socket.onmessage = event => note(event.data);
    socket.onclose = event => {
      at("state").textContent = "closed";
      note("closed: " + event.code + " " + event.reason);
    };
  };
  at("say").onsubmit = event => {
    event.preventDefault();
    if (socket.readyState > WebSocket.OPEN) connect();
    else if (socket.readyState === WebSocket.OPEN) socket.send(at("text").value);
    at("text").value = "";
  };
  connect();
</script>
</body>
</html>
)html";

}  // namespace websocket_server
