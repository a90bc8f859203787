#include "command_line.hpp"

#include <charconv>
#include <cstdio>
#include <cstring>
#include <string_view>

#include "duration.hpp"
#include "idlewheel/version.hpp"

namespace example {
namespace {

using std::chrono::nanoseconds;

// CLI11 puts the option's name before what a callback throws; the value we add.
[[noreturn]] void refuse(const std::string& option, const std::string& value,
                         const std::string& why) {
  throw CLI::ValidationError(option, fmt::format("'{}' {}", value, why));
}

template <class T>
void add_choice(CLI::App& app, const std::string& name, T& target,
                const std::map<std::string, T>& choices, const std::string& help) {
  std::string names;
  for (const auto& [choice, value] : choices) names += (names.empty() ? "" : "|") + choice;
  app.add_option_function<std::string>(
         name,
         [=, &target](const std::string& text) {
           const auto found = choices.find(text);
           if (found == choices.end()) refuse(name, text, "is not one of " + names);
           target = found->second;
         },
         help)
      ->type_name(names);
}

// ADDR:PORT, with IPv6 in brackets.
std::optional<sockaddr_storage> parse_address(std::string_view text) {
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return std::nullopt;
  std::string host{text.substr(0, colon)};
  const std::string_view port_text = text.substr(colon + 1);
  std::uint16_t port = 0;
  const auto [end, error] =
      std::from_chars(port_text.data(), port_text.data() + port_text.size(), port);
  if (error != std::errc{} || end != port_text.data() + port_text.size()) return std::nullopt;

  sockaddr_storage address{};
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
    sockaddr_in6 v6{};
    if (uv_ip6_addr(host.c_str(), port, &v6) != 0) return std::nullopt;
    std::memcpy(&address, &v6, sizeof v6);
  } else {
    sockaddr_in v4{};
    if (uv_ip4_addr(host.c_str(), port, &v4) != 0) return std::nullopt;
    std::memcpy(&address, &v4, sizeof v4);
  }
  return address;
}

}  // namespace

void add_duration(CLI::App& app, const std::string& name, nanoseconds& target, nanoseconds least,
                  const std::string& least_text, const std::string& help) {
  app.add_option_function<std::string>(
         name,
         [=, &target](const std::string& text) {
           const auto parsed = parse_duration(text);
           if (const auto* why = std::get_if<std::string>(&parsed)) refuse(name, text, *why);
           target = std::get<nanoseconds>(parsed);
           if (target < least) refuse(name, text, "is too short, " + least_text + " at least");
         },
         help)
      ->type_name("DURATION");
}

void add_server_options(CLI::App& app, const std::string& program, server_options& target) {
  app.set_version_flag("--version", fmt::format("{} {} (libuv {})", program, idlewheel::version,
                                                uv_version_string()));
  app.get_formatter()->column_width(36);
  app.add_option("--listen", target.listen, "address and port; IPv6 in brackets; port 0 picks one")
      ->type_name("ADDR:PORT")
      ->capture_default_str();
  add_duration(app, "--tick", target.tick, std::chrono::milliseconds{1}, "1ms",
               "resolution of the timeouts, 1ms or more [100ms]");
  app.add_option("--slots", target.slots, "slots of the wheel; tick x slots should exceed idle")
      ->check(CLI::Range(std::size_t{1}, idlewheel::timer_wheel::max_slots))
      ->type_name("N")
      ->capture_default_str();
  add_choice<idlewheel::refresh_mode>(app, "--refresh", target.refresh,
                                      {{"relink", idlewheel::refresh_mode::relink},
                                       {"deferred", idlewheel::refresh_mode::deferred}},
                                      "how a read moves its timeout [relink]");
  app.add_option(
         "--max-connections", target.max_connections,
         "above it the longest idle ones are closed, and more wait in the backlog when none\n"
         "is; at least 1 [what open files allow]")
      ->check(CLI::Range(std::size_t{1}, std::size_t{1} << 30))
      ->type_name("N");
  add_duration(app, "--evict-idle", target.evict_idle, nanoseconds{0}, "",
               "none of them is closed that was idle for less [1s]");
  app.add_option("--loops", target.loops,
                 "threads, each with a loop, a wheel and a listener of its own")
      ->check(CLI::Range(1u, most_loops))
      ->type_name("N")
      ->capture_default_str();
  add_duration(app, "--drain-window", target.drain_window, nanoseconds{0}, "",
               "after SIGTERM idle connections leave spread over this [2s]");
  add_duration(app, "--drain-grace", target.drain_grace, nanoseconds{0}, "",
               "and busy ones have so much longer [10s]");
  add_duration(app, "--lame-duck", target.lame_duck, nanoseconds{0}, "",
               "after SIGTERM go on accepting for so long, for health checks to notice [0s]");
  app.add_flag("--dry-run", target.dry_run,
               "close nothing for a timeout; say what would be closed, and why");
  add_choice<log_format>(app, "--log", target.log,
                         {{"text", log_format::text}, {"json", log_format::json}},
                         "a line of text or a JSON object an event [text]");
  app.add_flag("--quiet", target.quiet, "no line for a connection opened or closed");
  app.footer(
      "DURATION is a whole number with a unit: us, ms, s, m or h.\n"
      "SIGTERM lets connections finish, SIGINT closes them; then a summary is printed. A second "
      "signal\n"
      "ends it at once.");
}

std::optional<int> parse(CLI::App& app, int argc, char** argv, const std::string& program,
                         server_options& target) {
  try {
    app.parse(argc, argv);
    if (target.tick > std::chrono::nanoseconds{INT64_C(1) << 61})
      refuse("--tick", fmt::format("{} ns", target.tick.count()), "is too long, 73 years at most");
    const auto address = parse_address(target.listen);
    if (!address)
      refuse("--listen", target.listen, "is not ADDR:PORT, e.g. 127.0.0.1:7777 or [::1]:7777");
    target.address = *address;
  } catch (const CLI::Success& done) {  // --help, --version
    return app.exit(done);
  } catch (const CLI::Error& wrong) {
    std::string line = wrong.what();
    for (char& c : line)
      if (c == '\n') c = ' ';
    fmt::print(stderr, "{}: {}\n", program, line);
    return 2;
  }
  return std::nullopt;
}

}  // namespace example
