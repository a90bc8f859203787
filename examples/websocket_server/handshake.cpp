#include "handshake.hpp"

#include <fmt/format.h>
#include <nettle/base64.h>
#include <nettle/sha1.h>

#include <array>
#include <cstdint>

#include <boost/beast/http/rfc7230.hpp>

#include "page.hpp"

namespace websocket_server {
namespace {

namespace http = boost::beast::http;

constexpr std::uint32_t most_header = 16 * 1024;

}  // namespace

std::optional<std::string> accept_value(std::string_view key) {
  base64_decode_ctx decoder;
  base64_decode_init(&decoder);
  std::array<std::uint8_t, 24> nonce{};
  std::size_t size = nonce.size();
  if (key.size() != 24 ||
      base64_decode_update(&decoder, &size, nonce.data(), key.size(), key.data()) != 1 ||
      base64_decode_final(&decoder) != 1 || size != 16)
    return std::nullopt;

  // The GUID is the RFC's.
  const std::string text = std::string{key} + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
  sha1_ctx hash;
  sha1_init(&hash);
  sha1_update(&hash, text.size(), reinterpret_cast<const std::uint8_t*>(text.data()));
  std::array<std::uint8_t, SHA1_DIGEST_SIZE> digest{};
  sha1_digest(&hash, digest.size(), digest.data());
  std::array<char, BASE64_ENCODE_RAW_LENGTH(SHA1_DIGEST_SIZE)> encoded{};
  base64_encode_raw(encoded.data(), digest.size(), digest.data());
  return std::string{encoded.data(), encoded.size()};
}

answer respond(int status, std::string_view type, std::string_view body,
               std::string_view more_headers) {
  const auto reason = http::obsolete_reason(static_cast<http::status>(status));
  return {status, fmt::format("HTTP/1.1 {} {}\r\nServer: idlewheel\r\nConnection: close\r\n"
                              "Content-Type: {}\r\nContent-Length: {}\r\n{}\r\n{}",
                              status, std::string_view{reason.data(), reason.size()}, type,
                              body.size(), more_headers, body)};
}

handshake::handshake() { request_.header_limit(most_header); }

std::optional<answer> handshake::take(std::string& in) {
  boost::beast::error_code ec;
  while (!in.empty() && !request_.is_header_done() && !ec)
    in.erase(0, request_.put(boost::asio::buffer(in), ec));
  if (ec && ec != http::error::need_more)
    return respond(ec == http::error::header_limit ? 431 : 400, "text/plain", "");
  if (request_.is_header_done()) return decide();
  return std::nullopt;
}

answer handshake::decide() const {
  const auto& request = request_.get();
  if (request_.chunked() || request_.content_length_remaining().value_or(0) != 0)
    return respond(400, "text/plain", "no body here\n");
  if (request.method() != http::verb::get) return respond(405, "text/plain", "", "Allow: GET\r\n");
  if (!http::token_list{request[http::field::upgrade]}.exists("websocket")) {
    if (request.target() == "/") return respond(200, "text/html; charset=utf-8", page);
    if (request.target() == "/echo")
      return respond(426, "text/plain", "this is a WebSocket\n",
                     "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n");
    return respond(404, "text/plain", "not found\n");
  }
  if (request.target() != "/echo") return respond(404, "text/plain", "not found\n");
  if (request[http::field::sec_websocket_version] != "13")
    return respond(426, "text/plain", "", "Sec-WebSocket-Version: 13\r\n");
  const auto key = request[http::field::sec_websocket_key];
  const auto accept = accept_value({key.data(), key.size()});
  if (request.version() < 11 || !accept ||
      !http::token_list{request[http::field::connection]}.exists("upgrade"))
    return respond(400, "text/plain", "");
  return {101, fmt::format("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n"
                           "Connection: Upgrade\r\nSec-WebSocket-Accept: {}\r\n\r\n",
                           *accept)};
}

}  // namespace websocket_server
