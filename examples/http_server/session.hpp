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

class session final : public example::connection {
 public:
  session(example::server& owner, std::uint64_t id, const idlewheel::timeout_policy& policy);

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

  const idlewheel::timeout_policy& policy_;
  std::string in_;  // received and not parsed yet
  std::optional<parser> request_;
  std::uint64_t left_ = 0;  // of the body that is being sent
  bool responding_ = false;
  bool keep_alive_ = true;
  idlewheel::timer slow_;
};

}  // namespace http_server
