// Whole machines, planted as files, and what the doctor is to say of each.
#include "doctor/doctor.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <regex>
#include <set>

#include "doctor/report.h"
#include "paths.h"
#include "planted.h"
#include "temporary_folder.h"

namespace hearth::doctor {
namespace {

using testing::HasSubstr;
using testing::UnorderedElementsAreArray;

class Machines : public testing::TestWithParam<std::string> {};

TEST_P(Machines, AreFoundOutWhole) {
  const TemporaryFolder folder;
  const PlantedMachine planted = plant(machines_folder() / (GetParam() + ".machine"), folder.path());
  if (!planted.owns_groups) GTEST_SKIP() << "only root can give files to groups";
  system::Tree tree(folder.path());
  const system::Machine machine = system::read_machine(tree);
  const std::vector<Finding> findings = examine(machine, nullptr);
  std::vector<std::string> above_ok;
  for (const Finding& finding : findings) {
    if (finding.level == Level::ok) continue;
    above_ok.push_back(std::string(level_name(finding.level)) + " " + finding.id +
                       (finding.subject.empty() ? "" : " " + finding.subject));
    EXPECT_FALSE(finding.cost.empty()) << finding.id;
  }
  EXPECT_THAT(above_ok, UnorderedElementsAreArray(planted.expected)) << to_text(machine, nullptr, findings);
  EXPECT_EQ(exit_status(findings), planted.status);
}

INSTANTIATE_TEST_SUITE_P(All, Machines, testing::ValuesIn(machine_names()), [](const auto& info) {
  std::string name = info.param;
  std::ranges::replace_if(
      name, [](char c) { return c == '-' || c == '.'; }, '_');
  return name;
});

TEST(Doctor, HasThirtyMachines) { EXPECT_GE(machine_names().size(), 30U); }

/// The page on findings has a section for each kind that a source names.
TEST(Doctor, EveryFindingHasASection) {
  const fs::path source = kSourceDir;
  const std::string page = read_file(source / "docs/doctor.md");
  const std::regex id(
      R"re(id = (?:contained \? "[a-z-]+" : )?(?:has \? "device" : )?"([a-z-]+)"|Level::\w+,\s+"([a-z-]+)",)re");
  const std::set<std::string> always_ok = {"gpu", "pcie", "device"};
  int num_ids = 0;
  for (const fs::path& file : list_folder(source / "src/doctor")) {
    const std::string text = read_file(file);
    for (std::sregex_iterator found(text.begin(), text.end(), id), end; found != end; ++found) {
      const std::string name = (*found)[1].str() + (*found)[2].str();
      if (always_ok.contains(name)) continue;
      ++num_ids;
      EXPECT_THAT(page, HasSubstr("\n### " + name + "\n"));
    }
  }
  EXPECT_GT(num_ids, 50);
}

}  // namespace
}  // namespace hearth::doctor
