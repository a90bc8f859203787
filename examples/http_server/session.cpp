#include "session.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "server.hpp"

namespace http_server {
namespace {

namespace http = boost::beast::http;
using idlewheel::expiry_reason;
using idlewheel::phase;

constexpr std::uint32_t most_header = 16 * 1024;
constexpr std::uint64_t most_body = std::uint64_t{1} << 40;

// Larger bodies are sent from this, over and over.
const std::string& filler() {
  static const std::string text(64 * 1024, 'x');
  return text;
}

// N of "/path?name=N"; the default without it, nothing when it is not a number.
std::optional<std::uint64_t> number(std::string_view target, std::string_view name,
                                    std::uint64_t without) {
  const std::size_t query = target.find('?');
  if (query == std::string_view::npos) return without;
  std::string_view text = target.substr(query + 1);
  if (!text.starts_with(name) || text.size() == name.size() || text[name.size()] != '=')
    return std::nullopt;
  text.remove_prefix(name.size() + 1);
  std::uint64_t n = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return n;
}

// A request may name us before the path: "http://us/path" (RFC 9112, 3.2.2).
std::string_view path_of(std::string_view target) {
  if (!boost::beast::iequals(target.substr(0, 7), "http://")) return target;
  const std::size_t path = target.find('/', 7);
  return path == std::string_view::npos ? "/" : target.substr(path);
}

}  // namespace

std::string settings::keep_alive() const {
  const auto seconds =
      std::chrono::floor<std::chrono::seconds>(std::chrono::nanoseconds{policy.keep_alive});
  return seconds.count() > 1 ? fmt::format("Connection: keep-alive\r\nKeep-Alive: timeout={}\r\n",
                                           seconds.count() - 1)
                             : "Connection: keep-alive\r\n";
}

session::session(example::server& owner, std::uint64_t id, const settings& all,
                 const std::string& keep_alive)
    : connection{owner, id, all.policy, phase::header},
      keep_alive_header_{keep_alive},
      slow_{[this] {
        if (closing()) return;
        respond(200, "slow, but here\n");
        advance();
        if (!slow_.armed()) resume_reading();
      }} {}

void session::on_bytes(const char* data, std::size_t size) {
  in_.append(data, size);
  advance();
}

void session::advance() {
  while (!closing() && !said_goodbye() && !slow_.armed()) {
    if (responding_) {
      while (left_ != 0 && !sending() && !closing()) {
        const auto n = static_cast<std::size_t>(std::min<std::uint64_t>(left_, filler().size()));
        left_ -= n;
        send(std::string_view{filler()}.substr(0, n));
      }
      if (sending() || closing()) return;
      responding_ = false;
      request_.reset();
      if (!keep_alive_) return say_goodbye();
      skip_empty_lines();
      if (in_.empty()) timeouts().enter(phase::keep_alive);
    }
    if (!parse()) return;
    handle();
  }
}

// Between requests they are none, and move nothing (RFC 9112, 2.2).
void session::skip_empty_lines() { in_.erase(0, in_.find_first_not_of("\r\n")); }

bool session::parse() {
  if (!request_) {
    skip_empty_lines();
    if (in_.empty()) return false;
    if (timeouts().in() != phase::header) timeouts().enter(phase::header);
    request_.emplace();
    request_->get().body() = 0;
    request_->eager(true);
    request_->header_limit(most_header);
    request_->body_limit(most_body);
  }
  boost::beast::error_code ec;
  while (!in_.empty() && !request_->is_done() && !ec)
    in_.erase(0, request_->put(boost::asio::buffer(in_), ec));
  if (ec && ec != http::error::need_more) {
    refuse(ec == http::error::header_limit ? 431 : ec == http::error::body_limit ? 413 : 400);
    return false;
  }
  if (request_->is_done()) return true;
  // What the parser sets no limit to: chunk extensions and trailers that never end.
  if (in_.size() > most_header) {
    refuse(431);
    return false;
  }
  if (request_->is_header_done() && timeouts().in() == phase::header) {
    timeouts().enter(phase::body);
    const auto& request = request_->get();
    if (request.version() >= 11 && !sending() &&
        boost::beast::iequals(request[http::field::expect], "100-continue"))
      send("HTTP/1.1 100 Continue\r\n\r\n");
  }
  return false;
}

void session::handle() {
  timeouts().enter(phase::handling);
  const auto& request = request_->get();
  keep_alive_ = request.keep_alive();
  if (request.version() >= 11 && request.count(http::field::host) != 1)
    return respond(400, "Host?\n");
  const std::string_view target = path_of({request.target().data(), request.target().size()});
  const std::string_view path = target.substr(0, target.find('?'));
  if (path == "/") return respond(200, "hello\n");
  if (path == "/healthz")
    return owner().draining() ? respond(503, "draining\n") : respond(200, "ok\n");
  if (path == "/upload") return respond(200, fmt::format("{} bytes\n", request.body()));
  if (path == "/large") {
    const auto bytes = number(target, "bytes", 16 << 20);
    if (!bytes) return respond(400, "bytes=N wants a number\n");
    return respond(200, {}, *bytes);
  }
  if (path == "/slow") {
    const auto ms = number(target, "ms", 1000);
    if (!ms || *ms > 86'400'000) return respond(400, "ms=N wants a number up to a day\n");
    stop_reading(idlewheel::pause::ours);
    owner().wheel().arm(slow_, std::chrono::milliseconds{*ms});
    return;
  }
  respond(404, "not found\n");
}

void session::respond(int status, std::string_view text, std::uint64_t size) {
  if (owner().draining()) keep_alive_ = false;
  const bool head = request_ && request_->get().method() == http::verb::head;
  const std::string_view ends =
      keep_alive_ ? std::string_view{keep_alive_header_} : "Connection: close\r\n";
  const auto reason = http::obsolete_reason(static_cast<http::status>(status));
  std::string all = fmt::format(
      "HTTP/1.1 {} {}\r\nServer: idlewheel\r\nContent-Type: text/plain\r\n{}Content-Length: "
      "{}\r\n\r\n",
      status, std::string_view{reason.data(), reason.size()}, ends, size);
  if (!head) all += text;
  left_ = head ? 0 : size - text.size();
  responding_ = true;
  send(all);
}

void session::refuse(int status) {
  keep_alive_ = false;
  decide(fmt::format("status {}", status));
  respond(status, "");
  say_goodbye();
}

idlewheel::verdict session::on_timeout(const idlewheel::expiry& out) noexcept {
  const bool late_request =
      out.reason == expiry_reason::header || out.reason == expiry_reason::body ||
      out.reason == expiry_reason::request || out.reason == expiry_reason::rate_in;
  // Who never sent a byte is not told.
  if (!late_request || received() == 0 || sending()) return connection::on_timeout(out);
  keep_alive_ = false;
  decide(idlewheel::name_of(out.reason), lateness(out));
  respond(408, "");
  say_goodbye();
  return closing() ? idlewheel::verdict::close() : idlewheel::verdict::linger();
}

}  // namespace http_server
