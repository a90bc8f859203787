#include "ratio_table.hpp"

#include <algorithm>
#include <cstdio>

namespace bench {
namespace {

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 != 0 ? values[half] : (values[half - 1] + values[half]) / 2;
}

void remember(std::vector<std::string>& names, const std::string& name) {
  if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
}

}  // namespace

void ratio_table::ReportRuns(const std::vector<Run>& runs) {
  ConsoleReporter::ReportRuns(runs);
  for (const Run& run : runs) {
    if (run.run_type != Run::RT_Iteration || run.error_occurred) continue;
    const std::string& name = run.run_name.function_name;  // OPERATION/CONTENDER
    const std::size_t slash = name.find('/');
    const std::string operation = name.substr(0, slash);
    const std::string contender = name.substr(slash + 1);
    const auto ns = run.counters.find("ns");
    if (slash == std::string::npos || ns == run.counters.end()) continue;
    remember(operations_, operation);
    remember(contenders_[operation], contender);
    ns_[operation][contender][std::stol(run.run_name.args)].push_back(ns->second.value);
  }
}

void ratio_table::print(const std::map<std::string, std::string>& reference_of) const {
  for (const std::string& operation : operations_) {
    const auto& rows = ns_.at(operation);
    const auto reference = reference_of.find(operation);
    std::vector<long> columns;
    for (const auto& [n, values] : rows.begin()->second) columns.push_back(n);

    std::printf("\n**%s**, ns per operation", operation.c_str());
    if (reference != reference_of.end()) std::printf(" (times %s)", reference->second.c_str());
    std::printf("\n\n| |");
    for (const long n : columns) std::printf(" %ld |", n);
    std::printf(" min - max at %ld |\n|---|", columns.back());
    for (std::size_t i = 0; i <= columns.size(); ++i) std::printf("---:|");
    std::printf("\n");
    for (const std::string& contender : contenders_.at(operation)) {
      const auto& row = rows.at(contender);
      std::printf("| %s |", contender.c_str());
      for (const long n : columns) {
        const double ns = median(row.at(n));
        std::printf(" %.1f", ns);
        if (reference != reference_of.end())
          std::printf(" (%.2f)", ns / median(rows.at(reference->second).at(n)));
        std::printf(" |");
      }
      const auto [least, most] =
          std::minmax_element(row.at(columns.back()).begin(), row.at(columns.back()).end());
      std::printf(" %.1f - %.1f |\n", *least, *most);
    }
  }
}

}  // namespace bench
