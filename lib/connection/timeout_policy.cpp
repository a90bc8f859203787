#include "idlewheel/connection/timeout_policy.hpp"

#include <initializer_list>
#include <stdexcept>
#include <string>

namespace idlewheel {
namespace {

struct named {
  const char* field;
  timespan value;
};

std::string ns(timespan value) { return std::to_string(value.count_ns()) + " ns"; }

[[noreturn]] void refuse(const std::string& field, const std::string& why) {
  throw std::invalid_argument("idlewheel: timeout_policy::" + field + ' ' + why);
}

bool on(timespan limit) { return limit > timespan{}; }

void want_not_negative(const named& limit) {
  if (limit.value < timespan{}) refuse(limit.field, "is 0 (off) or more, not " + ns(limit.value));
}

void want_within(const named& part, const named& whole) {
  if (on(part.value) && on(whole.value) && part.value > whole.value)
    refuse(part.field,
           "of " + ns(part.value) + " is never reached: " + whole.field + " is " + ns(whole.value));
}

void want_before(const named& first, const named& second) {
  if (on(first.value) && on(second.value) && first.value >= second.value)
    refuse(first.field, "of " + ns(first.value) + " is never reached: " + second.field + " is " +
                            ns(second.value));
}

void want_partner(const named& limit, const named& needed) {
  if (on(limit.value) && !on(needed.value))
    refuse(limit.field, "of " + ns(limit.value) + " needs " + needed.field + ", which is off");
}

void want_rate(const char* field, const transfer_rate& rate) {
  if (rate.grace < timespan{} || (rate.bytes_per_second != 0 && rate.grace == timespan{}))
    refuse(std::string{field} + ".grace", "is more than 0, not " + ns(rate.grace));
}

}  // namespace

void timeout_policy::validate() const {
  for (const named& limit : std::initializer_list<named>{{"handshake", handshake},
                                                         {"header", header},
                                                         {"body", body},
                                                         {"request", request},
                                                         {"keep_alive", keep_alive},
                                                         {"idle", idle},
                                                         {"read_idle", read_idle},
                                                         {"message_idle", message_idle},
                                                         {"write_stall", write_stall},
                                                         {"idle_min", idle_min},
                                                         {"max_pause", max_pause},
                                                         {"ping_after", ping_after},
                                                         {"ping_timeout", ping_timeout},
                                                         {"ping_after_send", ping_after_send},
                                                         {"max_age", max_age},
                                                         {"age_grace", age_grace},
                                                         {"linger", linger}})
    want_not_negative(limit);
  want_rate("min_rate_in", min_rate_in);
  want_rate("min_rate_out", min_rate_out);
  if (!(age_jitter >= 0 && age_jitter <= 1))  // NaN, too
    refuse("age_jitter", "is 0 to 1, not " + std::to_string(age_jitter));
  if (missed < 1 || missed > 255) refuse("missed", "is 1 to 255, not " + std::to_string(missed));

  named longest{"idle", idle};
  for (const named& limit :
       {named{"read_idle", read_idle}, {"message_idle", message_idle}, {"keep_alive", keep_alive}})
    if (limit.value > longest.value) longest = limit;
  want_within({"idle_min", idle_min}, longest);
  want_within({"header", header}, {"request", request});
  want_within({"body", body}, {"request", request});
  want_before({"ping_after", ping_after}, {"idle", idle});
  want_before({"ping_after", ping_after}, {"read_idle", read_idle});
  want_before({"ping_after", ping_after}, {"message_idle", message_idle});
  want_partner({"ping_after", ping_after}, {"ping_timeout", ping_timeout});
  want_partner({"ping_timeout", ping_timeout}, {"ping_after", ping_after});
  want_partner({"age_grace", age_grace}, {"max_age", max_age});
}

}  // namespace idlewheel
