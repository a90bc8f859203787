// session.hpp - one HTTP/1.1 connection: its requests one after the other, pipelined or not, each
// phase of them told to the connection's timeouts.
#pragma once
#include <boost/beast/http/parser.hpp>
#include <cstdint>
#include <optional>
#include <string>

#include "connection.hpp"
#include "idlewheel/wheel/timer.hpp"
#include "sink_body.hpp"

namespace http_server {

struct settings {
  idlewheel::timeout_policy policy;
  // What we tell the client of it: a little less than is enforced, so that one that believes it never
  // meets the close.
  std::string keep_alive() const;
};

class session final : public example::connection {
 public:
  // `keep_alive`: settings::keep_alive(), which outlives it.
  session(example::server& owner, std::uint64_t id, const settings& all,
          const std::string& keep_alive);

 private:
  using parser = boost::beast::http::request_parser<sink_body>;

  void on_bytes(const char* data, std::size_t size) override;
  void on_drained() override { advance(); }
  idlewheel::verdict on_timeout(const idlewheel::expiry& out) noexcept override;

  void advance();  // as far as bytes, responses and the peer allow
  bool parse();    // a whole request is there
  void skip_empty_lines();
  void handle();
  void respond(int status, std::string_view text, std::uint64_t size);
  void respond(int status, std::string_view text) { respond(status, text, text.size()); }
  void refuse(int status);  // and end the connection

  const std::string& keep_alive_header_;
  std::string in_;  // received and not parsed yet
  std::optional<parser> request_;
  std::uint64_t left_ = 0;  // of the body that is being sent
  bool responding_ = false;
  bool keep_alive_ = true;
  idlewheel::timer slow_;
};

}  // namespace http_server
