// echo_server.hpp - the echo server under test.
#pragma once
#include "tests/support/process.hpp"

namespace idlewheel::test {

struct echo_server : server {
  explicit echo_server(std::vector<std::string> arguments,
                       const std::string& listen = "127.0.0.1:0", output to = output::pipe)
      : server{ECHO_SERVER, std::move(arguments), listen, to} {}
};

}  // namespace idlewheel::test
