// ratio_table.hpp - the figures of one run, medians, as a table of ratios to a reference.
#pragma once
#include <benchmark/benchmark.h>

#include <map>
#include <string>
#include <vector>

namespace bench {

// Collects each benchmark's ns per operation while the console reporter prints as ever. Names are
// OPERATION/CONTENDER/N.
class ratio_table : public benchmark::ConsoleReporter {
 public:
  void ReportRuns(const std::vector<Run>& runs) override;

  // After the run: for each operation a Markdown table, a row a contender, a column an N: median
  // ns, and in brackets how many times the operation's reference that is; min and max at the
  // largest N.
  void print(const std::map<std::string, std::string>& reference_of) const;

 private:
  std::map<std::string, std::map<std::string, std::map<long, std::vector<double>>>> ns_;
  std::vector<std::string> operations_;
  std::map<std::string, std::vector<std::string>> contenders_;
};

}  // namespace bench
