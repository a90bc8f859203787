// websocket_server - an RFC 6455 echo that pings the silent, closes the dead, and tells them from those
// who have nothing to say.
//
//   GET /       a page that makes a browser a client
//   GET /echo   the WebSocket
#include "command_line.hpp"
#include "serve.hpp"
#include "session.hpp"

int main(int argc, char** argv) {
  using namespace std::chrono_literals;
  const std::string program = "websocket_server";
  example::server_options options;
  std::chrono::nanoseconds handshake = 10s, message_idle = 600s, ping_after = 30s,
                           ping_timeout = 20s, write_stall = 30s, max_age = 0s, age_grace = 10s,
                           linger = 5s;
  websocket_server::limits limits;

  CLI::App app{"Echoes WebSocket messages, pings silent peers and closes dead ones."};
  example::add_server_options(app, program, options);
  const auto limit = [&](const std::string& name, std::chrono::nanoseconds& target,
                         const std::string& help) {
    example::add_duration(app, name, target, 0ns, "", help);
  };
  limit("--handshake", handshake, "for the opening handshake; 0s never [10s]");
  limit("--ping-after", ping_after, "ping after so much silence; 0s never [30s]");
  limit("--ping-timeout", ping_timeout, "then wait so long for any byte [20s]");
  app.add_option("--missed", limits.open.missed, "pings unanswered, and the peer is dead")
      ->type_name("N")
      ->capture_default_str();
  limit("--message-idle", message_idle,
        "without a message, answered pings or not; 0s never [600s]");
  limit("--write-stall", write_stall, "for a peer that takes nothing of its echo [30s]");
  limit("--max-age", max_age, "a connection's life; 0s for ever [0s]");
  limit("--age-grace", age_grace, "for the peer to end it then [10s]");
  example::add_duration(app, "--linger", linger, 1ms, "1ms", "for the peer's end after ours [5s]");
  app.add_option("--max-message", limits.most_message, "bytes in a message")
      ->type_name("N")
      ->check(CLI::Range(std::size_t{1}, std::size_t{1} << 30))
      ->capture_default_str();
  if (const auto status = example::parse(app, argc, argv, program, options)) return *status;

  limits.opening.handshake = handshake;
  limits.open.ping_after = ping_after;
  limits.open.ping_timeout = ping_after == 0s ? 0s : ping_timeout;
  limits.open.message_idle = message_idle;
  limits.open.max_age = max_age;
  limits.open.age_grace = max_age == 0s ? 0s : age_grace;
  limits.opening.write_stall = limits.open.write_stall = write_stall;
  limits.opening.linger = limits.open.linger = linger;
  try {
    limits.opening.validate();
    limits.open.validate();
  } catch (const std::invalid_argument& wrong) {
    fmt::print(stderr, "{}: {}\n", program, wrong.what());
    return 2;
  }
  return example::serve(program, options, [&](example::server& owner, std::uint64_t id) {
    return new websocket_server::session{owner, id, limits};
  });
}
