// server_log.hpp - one of our servers, telling in JSON what becomes of its connections.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/process.hpp"

namespace idlewheel::test {

class logging_server : public server {
 public:
  explicit logging_server(std::vector<std::string> command, std::vector<std::string> arguments = {},
                          const std::string& listen = "127.0.0.1:0")
      : server{std::move(command), with_json(std::move(arguments)), listen} {}

  struct closing {
    std::string reason = "nothing";
    double silent_ms = 0;
    double late_ms = 0;  // 0 when it was no timeout
  };
  // What the next connection that closes says of it.
  closing next_closing() {
    const auto text = line_with("\"close\"");
    if (!text) return {};
    const auto object = nlohmann::json::parse(*text);
    const auto& late = object.at("late_ms");
    return {.reason = object.at("reason"),
            .silent_ms = object.at("idle_ms"),
            .late_ms = late.is_null() ? 0 : late.get<double>()};
  }
  std::string next_reason() { return next_closing().reason; }

 private:
  static std::vector<std::string> with_json(std::vector<std::string> all) {
    all.insert(all.end(), {"--log", "json"});
    return all;
  }
};

}  // namespace idlewheel::test
