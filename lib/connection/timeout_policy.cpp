#include "idlewheel/connection/timeout_policy.hpp"

#include <stdexcept>
#include <string>

namespace idlewheel {
namespace {

void want_not_negative(const char* field, timespan value) {
  if (value < timespan{})
    throw std::invalid_argument("idlewheel: timeout_policy::" + std::string{field} +
                                " is 0 (off) or more, not " + std::to_string(value.count_ns()) +
                                " ns");
}

}  // namespace

void timeout_policy::validate() const {
  want_not_negative("idle", idle);
  want_not_negative("read_idle", read_idle);
}

}  // namespace idlewheel
