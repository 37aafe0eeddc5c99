#include "system/tree.h"

#include <gmock/gmock.h>
#include <sys/stat.h>

#include "temporary_folder.h"

namespace hearth::system {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class PlantedTree : public testing::Test {
 protected:
  void plant(const fs::path& file, std::string_view text) {
    fs::create_directories((root() / file).parent_path());
    write_file_atomically(root() / file, text);
  }
  const fs::path& root() const { return folder_.path(); }

 private:
  TemporaryFolder folder_;
};

TEST_F(PlantedTree, LinesNumbersAndValues) {
  plant("proc/status", "Name:\thearth\nUid:\t1000\t1000\n");
  plant("sys/number", " 42 \nrest\n");
  plant("sys/hex", "0x1002\n");
  Tree tree(root());
  EXPECT_EQ(tree.line("sys/number"), "42");
  EXPECT_EQ(tree.number("sys/number"), 42);
  EXPECT_EQ(tree.number("sys/hex"), 0x1002);
  EXPECT_EQ(tree.number("proc/status"), std::nullopt);
  EXPECT_EQ(tree.number("sys/absent"), std::nullopt);
  EXPECT_EQ(tree.value("proc/status", "Uid"), "1000\t1000");
  EXPECT_EQ(tree.value("proc/status", "Na"), "");
}

TEST_F(PlantedTree, AFileThatBlocksIsNamedAndTheNextOneRead) {
  plant("sys/good", "1\n");
  ASSERT_EQ(mkfifo((root() / "sys/stuck").c_str(), 0600), 0);
  Tree tree(root());
  EXPECT_EQ(tree.line("sys/stuck"), "");
  EXPECT_EQ(tree.line("sys/stuck"), "");
  EXPECT_EQ(tree.line("sys/good"), "1");
  EXPECT_THAT(tree.blocked(), ElementsAre("sys/stuck"));
}

TEST_F(PlantedTree, OfAHugeFileTheStartIsRead) {
  plant("sys/large", std::string(Tree::kMaxFileBytes + 5, 'x'));
  Tree tree(root());
  EXPECT_EQ(std::ssize(tree.text("sys/large")), Tree::kMaxFileBytes);
  EXPECT_EQ(Tree("/").text("dev/zero").size(), static_cast<size_t>(Tree::kMaxFileBytes));
}

TEST_F(PlantedTree, LinksStayBelowTheRoot) {
  plant("sys/devices/pci0000:00/0000:03:00.0/vendor", "0x1002\n");
  fs::create_directories(root() / "sys/bus");
  fs::create_directory_symlink("../devices/pci0000:00/0000:03:00.0", root() / "sys/bus/gpu");
  fs::create_directory_symlink("/usr", root() / "sys/bus/out");
  Tree tree(root());
  EXPECT_EQ(tree.resolved("sys/bus/gpu"), "sys/devices/pci0000:00/0000:03:00.0");
  EXPECT_EQ(tree.link_name("sys/bus/gpu"), "0000:03:00.0");
  EXPECT_EQ(tree.resolved("sys/bus/out"), "sys/bus/out");
  EXPECT_THAT(tree.list("sys/bus"), ElementsAre("gpu", "out"));
  EXPECT_THAT(tree.list("sys/absent"), IsEmpty());
}

}  // namespace
}  // namespace hearth::system
