// echo_server - sends back what it receives and closes connections that fall silent.
#include "command_line.hpp"
#include "connection.hpp"
#include "server.hpp"

namespace {

class session final : public example::connection {
 public:
  using connection::connection;

 private:
  void on_bytes(const char* data, std::size_t size) override { send({data, size}); }
};

}  // namespace

int main(int argc, char** argv) {
  const std::string program = "echo_server";
  example::server_options options;
  std::chrono::nanoseconds idle = std::chrono::seconds{30};
  CLI::App app{"Echoes what it receives and closes connections that fall silent."};
  example::add_server_options(app, program, options);
  example::add_duration(app, "--idle", idle, {}, "",
                        "close a connection after this much silence; 0s never [30s]");
  if (const auto status = example::parse(app, argc, argv, program, options)) return *status;

  const idlewheel::timeout_policy policy{.idle = idle};
  return example::serve(program, options, [&](example::server& owner, std::uint64_t id) {
    return new session{owner, id, policy, idlewheel::phase::upgraded};
  });
}
