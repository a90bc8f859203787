// http_server - HTTP/1.1 with keep-alive and pipelining, a few fixed answers, and every limit that a
// public server wants.
//
//   GET  /             a greeting
//   GET  /healthz      200, and 503 while the server drains
//   GET  /large        bytes=N of them, 16 MiB without
//   GET  /slow         after ms=N, 1000 without
//   POST /upload       counts what it is sent
#include "command_line.hpp"
#include "serve.hpp"
#include "session.hpp"

int main(int argc, char** argv) {
  using namespace std::chrono_literals;
  const std::string program = "http_server";
  example::server_options options;
  std::chrono::nanoseconds header = 30s, body = 300s, keep_alive = 75s, idle = 0s,
                           write_stall = 30s, grace = 5s, linger = 5s, idle_min = 0s;
  http_server::settings all;
  idlewheel::timeout_policy& policy = all.policy;
  policy.min_rate_in.bytes_per_second = policy.min_rate_out.bytes_per_second = 240;
  bool no_limits = false;

  CLI::App app{"Serves a few fixed answers and closes connections that take too long."};
  example::add_server_options(app, program, options);
  const auto limit = [&](const std::string& name, std::chrono::nanoseconds& target,
                         const std::string& help) {
    example::add_duration(app, name, target, 0ns, "", help);
  };
  limit("--header", header, "for the head of a request; 0s never [30s]");
  limit("--body", body, "for its body; 0s never [300s]");
  limit("--keep-alive", keep_alive, "between two requests; 0s never [75s]");
  limit("--idle", idle, "silence in both directions, whatever the phase; 0s never [0s]");
  limit(
      "--idle-min", idle_min,
      "what keep-alive and idle shrink to when the limit on connections is near; 0s: they do not");
  limit("--write-stall", write_stall, "for a peer that takes nothing of a response [30s]");
  example::add_duration(app, "--linger", linger, 1ms, "1ms", "for the peer's FIN after ours [5s]");
  app.add_option("--min-rate-in", policy.min_rate_in.bytes_per_second,
                 "bytes per second that a body has to come with; 0 any")
      ->type_name("N")
      ->capture_default_str();
  app.add_option("--min-rate-out", policy.min_rate_out.bytes_per_second,
                 "bytes per second that a response has to be taken with; 0 any")
      ->type_name("N")
      ->capture_default_str();
  example::add_duration(app, "--grace", grace, 1ms, "1ms", "before a rate is demanded [5s]");
  app.add_flag("--no-limits", no_limits, "all limits off: to see what they are good for");
  if (const auto status = example::parse(app, argc, argv, program, options)) return *status;

  policy.header = header;
  policy.body = body;
  policy.keep_alive = keep_alive;
  policy.idle = idle;
  policy.idle_min = idle_min;
  policy.write_stall = write_stall;
  policy.linger = linger;
  policy.min_rate_in.grace = policy.min_rate_out.grace = grace;
  if (no_limits) policy = {};
  try {
    policy.validate();
  } catch (const std::invalid_argument& wrong) {
    fmt::print(stderr, "{}: {}\n", program, wrong.what());
    return 2;
  }
  const std::string keep_alive_header = all.keep_alive();
  return example::serve(program, options, [&](example::server& owner, std::uint64_t id) {
    return new http_server::session{owner, id, all, keep_alive_header};
  });
}
