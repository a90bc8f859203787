// echo_server - sends back what it receives and closes connections that fall silent.
#include "command_line.hpp"
#include "connection.hpp"
#include "serve.hpp"

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
  std::chrono::nanoseconds idle = std::chrono::seconds{30}, idle_min{};
  CLI::App app{"Echoes what it receives and closes connections that fall silent."};
  example::add_server_options(app, program, options);
  example::add_duration(app, "--idle", idle, {}, "",
                        "close a connection after this much silence; 0s never [30s]");
  example::add_duration(app, "--idle-min", idle_min, {}, "",
                        "what idle shrinks to when the limit on connections is near;\n"
                        "0s: it does not [0s]");
  if (const auto status = example::parse(app, argc, argv, program, options)) return *status;

  const idlewheel::timeout_policy policy{
      .idle = idle, .idle_min = idle_min, .linger = std::chrono::seconds{5}};
  try {
    policy.validate();
  } catch (const std::invalid_argument& wrong) {
    fmt::print(stderr, "{}: {}\n", program, wrong.what());
    return 2;
  }
  return example::serve(program, options, [&](example::server& owner, std::uint64_t id) {
    return new session{owner, id, policy, idlewheel::phase::upgraded};
  });
}
