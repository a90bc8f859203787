// options.hpp - the command line.
#pragma once
#include <uv.h>

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>

#include "idlewheel/wheel/timer_wheel.hpp"

namespace echo {

enum class log_format { text, json };

struct options {
  std::string listen = "127.0.0.1:7777";
  sockaddr_storage address{};
  std::chrono::nanoseconds idle = std::chrono::seconds{30};
  std::chrono::nanoseconds tick = std::chrono::milliseconds{100};
  std::size_t slots = 512;
  idlewheel::refresh_mode refresh = idlewheel::refresh_mode::relink;
  std::size_t max_connections = 0;  // 0: no limit of ours
  log_format log = log_format::text;
  bool quiet = false;
};

// Fills `parsed`; returns an exit status when the program should end instead: 0 after --help and
// --version, 2 after one line on stderr about what was wrong.
std::optional<int> parse(int argc, char** argv, options& parsed);

}  // namespace echo
