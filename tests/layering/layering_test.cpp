// layering_test.cpp - who may include whom: the table of rooms in docs/design.md, enforced.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace {

namespace fs = std::filesystem;
const fs::path source_dir = IDLEWHEEL_SOURCE_DIR;

// A room may include itself and what stands here.
const std::map<std::string, std::set<std::string>> may_include{
    {"wheel", {}},
    {"uv", {"wheel", "<uv.h>"}},
    {"testing", {"wheel"}},
    {"connection", {"wheel"}},
    {"task", {"uv", "wheel", "<uv.h>"}},
};

struct included {
  std::string file;
  std::string what;  // as written, with its brackets or quotes
};

std::vector<included> includes_of(const std::string& name, std::istream& text) {
  static const std::regex directive{R"(^\s*#\s*include\s*(<[^>]+>|"[^"]+"))"};
  std::vector<included> all;
  std::smatch found;
  for (std::string line; std::getline(text, line);)
    if (std::regex_search(line, found, directive)) all.push_back({name, found[1]});
  return all;
}

std::string room_of(const std::string& path) {  // of "idlewheel/ROOM/..."
  std::smatch found;
  static const std::regex in_room{R"(idlewheel/([a-z]+)/)"};
  return std::regex_search(path, found, in_room) ? found[1].str() : std::string{};
}

// What is wrong with `i` in a file of the library's room `room`; empty when nothing is.
std::string broken_rule(const std::string& room, const included& i) {
  const std::set<std::string>& allowed = may_include.at(room);
  if (i.what == "<uv.h>")
    return allowed.contains("<uv.h>") ? "" : i.file + ": " + room + " must not include <uv.h>";
  const std::string other = room_of(i.what);
  if (other.empty()) return "";
  if (other != room && !allowed.contains(other))
    return i.file + ": " + room + " must not include " + i.what;
  if (other != room && i.what.find("/detail/") != std::string::npos)
    return i.file + ": " + i.what + " is private to " + other;
  return "";
}

std::vector<fs::path> sources_below(const fs::path& folder) {
  std::vector<fs::path> all;
  if (!fs::exists(folder)) return all;
  for (const auto& entry : fs::recursive_directory_iterator{folder}) {
    const std::string ending = entry.path().extension().string();
    if (ending == ".hpp" || ending == ".cpp" || ending == ".h" || ending == ".c")
      all.push_back(entry.path());
  }
  return all;
}

std::vector<included> all_includes(const fs::path& file) {
  std::ifstream text{file};
  return includes_of(fs::relative(file, source_dir).string(), text);
}

TEST(Layering, EveryRoomIncludesOnlyWhatItMay) {
  std::size_t checked = 0;
  for (const auto& [room, allowed] : may_include)
    for (const char* top : {"include/idlewheel", "lib"})
      for (const fs::path& file : sources_below(source_dir / top / room))
        for (const included& i : all_includes(file)) {
          ++checked;
          EXPECT_EQ(broken_rule(room, i), "");
        }
  EXPECT_GT(checked, 50u) << "a test that reads nothing proves nothing";
}

TEST(Layering, EveryFileOfTheLibraryStandsInARoom) {
  for (const char* top : {"include/idlewheel", "lib"})
    for (const auto& entry : fs::directory_iterator{source_dir / top})
      if (entry.is_directory()) {
        EXPECT_TRUE(may_include.contains(entry.path().filename().string())) << entry.path();
      } else {
        EXPECT_EQ(entry.path().filename(), "version.hpp");
      }
}

TEST(Layering, WhoUsesTheLibraryIncludesItsPublicHeadersOnly) {
  for (const char* top : {"examples", "tests", "bench", "fuzz"})
    for (const fs::path& file : sources_below(source_dir / top))
      for (const included& i : all_includes(file)) {
        EXPECT_EQ(i.what.find("idlewheel/") != std::string::npos &&
                      i.what.find("/detail/") != std::string::npos,
                  false)
            << i.file << " includes " << i.what;
        EXPECT_EQ(i.what.find("lib/"), std::string::npos) << i.file << " includes " << i.what;
        if (std::string{top} == "examples") {
          EXPECT_EQ(i.what.find("tests/"), std::string::npos) << i.file << " includes " << i.what;
        }
      }
}

TEST(Layering, PublicHeadersIncludeTheStandardLibraryAndOursOnly) {
  for (const fs::path& file : sources_below(source_dir / "include"))
    for (const included& i : all_includes(file)) {
      const bool ours = i.what.starts_with("\"idlewheel/");
      const bool standard = i.what.starts_with("<") && i.what.find('.') == std::string::npos;
      EXPECT_TRUE(ours || standard || i.what == "<uv.h>") << i.file << " includes " << i.what;
    }
}

// The rules themselves can fail.
TEST(Layering, SeesWhatItForbids) {
  std::istringstream text{
      "#include <vector>\n"
      "  #  include <uv.h>\n"
      "#include \"idlewheel/uv/loop_wheel.hpp\"\n"
      "// #include \"idlewheel/task/task_timer.hpp\" in a comment is none\n"
      "#include \"idlewheel/wheel/detail/link.hpp\"\n"};
  const auto found = includes_of("some.hpp", text);
  ASSERT_EQ(found.size(), 4u);
  EXPECT_EQ(broken_rule("connection", found[0]), "");
  EXPECT_NE(broken_rule("connection", found[1]), "");
  EXPECT_NE(broken_rule("connection", found[2]), "");
  EXPECT_NE(broken_rule("connection", found[3]), "") << "another room's detail";
  EXPECT_EQ(broken_rule("wheel", found[3]), "") << "its own detail";
  EXPECT_NE(broken_rule("testing", found[2]), "");
  EXPECT_EQ(broken_rule("task", found[2]), "");
}

}  // namespace
