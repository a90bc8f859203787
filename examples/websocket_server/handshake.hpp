// handshake.hpp - what a WebSocket connection begins with: one HTTP request, and our answer to it.
#pragma once
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/parser.hpp>

namespace websocket_server {

struct answer {
  int status;  // 101: WebSocket frames from here on; anything else: the connection ends
  std::string bytes;
};

// A whole response, after which the connection ends.
answer respond(int status, std::string_view type, std::string_view body,
               std::string_view more_headers = {});

class handshake {
 public:
  handshake();

  // Takes what has come. Returns the answer once the request is whole, or cannot become one; what
  // followed the request stays in `in`.
  std::optional<answer> take(std::string& in);

 private:
  answer decide() const;

  boost::beast::http::request_parser<boost::beast::http::empty_body> request_;
};

// Sec-WebSocket-Accept for a Sec-WebSocket-Key (RFC 6455, 4.2.2); nothing when the key is not 16
// bytes in Base64.
std::optional<std::string> accept_value(std::string_view key);

}  // namespace websocket_server
