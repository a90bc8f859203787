// command_line.hpp - what the command lines of our servers have in common, parsed by CLI11.
#pragma once
#include <fmt/core.h>
#include <uv.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstddef>
#include <map>
#include <optional>
#include <string>

#include "idlewheel/wheel/timer_wheel.hpp"

namespace example {

enum class log_format { text, json };

inline constexpr unsigned most_loops = 64;

struct server_options {
  std::string listen = "127.0.0.1:7777";
  sockaddr_storage address{};
  std::chrono::nanoseconds tick = std::chrono::milliseconds{100};
  std::size_t slots = 512;
  idlewheel::refresh_mode refresh = idlewheel::refresh_mode::relink;
  std::size_t max_connections = 0;  // 0: as many as descriptors allow
  std::chrono::nanoseconds evict_idle = std::chrono::seconds{1};
  unsigned loops = 1;
  std::chrono::nanoseconds lame_duck{};
  std::chrono::nanoseconds drain_window = std::chrono::seconds{2};
  std::chrono::nanoseconds drain_grace = std::chrono::seconds{10};
  bool dry_run = false;
  log_format log = log_format::text;
  bool quiet = false;
};

// What every server of ours can be told; see --help.
void add_server_options(CLI::App& app, const std::string& program, server_options& target);

// A duration; less than `least` is refused, and 0 is as good as any when that is 0.
void add_duration(CLI::App& app, const std::string& name, std::chrono::nanoseconds& target,
                  std::chrono::nanoseconds least, const std::string& least_text,
                  const std::string& help);

// Fills what was added; returns an exit status when the program should end instead: 0 after --help
// and --version, 2 after one line on stderr about what was wrong.
std::optional<int> parse(CLI::App& app, int argc, char** argv, const std::string& program,
                         server_options& target);

}  // namespace example
