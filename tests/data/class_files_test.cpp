#include "data/class_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "data/images/image.h"
#include "files.h"
#include "temporary_folder.h"

namespace hearth::data {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class ClassFolder : public testing::Test {
 protected:
  fs::path at(const std::string& name) const { return folder_.path() / name; }
  void put(const std::string& name, const std::string& text = "x") const { put_file(at(name), text); }
  /// Images 0.png to COUNT-1.png of a class.
  void put_class(const std::string& folder, int count) const {
    for (int i = 0; i < count; ++i) put(fmt::format("{}/{}.png", folder, i));
  }
  ClassFiles list(bool is_training, double share = 0.2, const std::string& below = "") const {
    return list_class_files({.path = at(below), .is_training = is_training, .val_share = share});
  }
  std::set<std::string> names(const ClassFiles& files) const {
    std::set<std::string> made;
    for (const LabeledFile& file : files.files)
      made.insert(fmt::format("{}={}", file.path.lexically_relative(folder_.path()).string(),
                              files.class_names[static_cast<size_t>(file.label)]));
    return made;
  }
  TemporaryFolder folder_;
};

TEST_F(ClassFolder, AShareOfEachClassIsHeldOut) {
  put_class("ant", 100);
  put_class("bee", 50);
  put_class("cow", 2);
  put_class("dog", 1);
  const ClassFiles train = list(true), held_out = list(false);
  EXPECT_THAT(train.class_names, ElementsAre("ant", "bee", "cow", "dog"));
  EXPECT_EQ(train.class_names, held_out.class_names);
  EXPECT_EQ(train.files.size() + held_out.files.size(), 153U);
  for (const std::string& name : names(held_out)) EXPECT_FALSE(names(train).contains(name)) << name;
  std::map<int32_t, int> counts;
  for (const LabeledFile& file : held_out.files) ++counts[file.label];
  EXPECT_NEAR(counts[0], 20, 10);
  EXPECT_NEAR(counts[1], 10, 7);
  EXPECT_EQ(counts[2], 1);
  EXPECT_EQ(counts[3], 0);
  ASSERT_EQ(train.notes.size(), 1U);
  EXPECT_THAT(train.notes[0], HasSubstr("has no validation split"));
  EXPECT_EQ(train.notes, held_out.notes);
  EXPECT_TRUE(train.faults.empty());
}

TEST_F(ClassFolder, TheSplitOfAnImageStays) {
  put_class("ant", 60);
  put_class("bee", 60);
  const auto before = names(list(false));
  put_class("ant", 90);
  const auto after = names(list(false));
  EXPECT_TRUE(std::ranges::includes(after, before));
  // New files are added to either split; old files stay in theirs.
  for (const std::string& name : after) {
    const bool is_new = std::stoi(name.substr(4)) >= 60;
    EXPECT_EQ(is_new, !before.contains(name)) << name;
  }
}

TEST_F(ClassFolder, HeldOutFoldersHaveSeveralNames) {
  put_class("train/ant", 2);
  put_class("train/bee", 2);
  EXPECT_EQ(list(false).files.size(), 2U);
  for (const char* name : {"test", "dev", "validation", "valid", "val"}) {
    put_class(fmt::format("{}/ant", name), 3);
    put_class(fmt::format("{}/bee", name), 3);
    const ClassFiles held_out = list(false);
    EXPECT_EQ(held_out.files.size(), 6U) << name;
    EXPECT_THAT(held_out.files[0].path.string(), HasSubstr(fmt::format("/{}/", name)));
    EXPECT_EQ(list(true).files.size(), 4U);
  }
  EXPECT_THAT(list(true).notes, testing::Contains(HasSubstr("test is not read, because")));
}

TEST_F(ClassFolder, OtherFoldersAreExplained) {
  EXPECT_THAT(error_of([&] { list(true); }), HasSubstr("expected train/CLASS/*"));
  put_class("Pets/cat", 1);
  put_class("Pets/dog", 1);
  EXPECT_THAT(error_of([&] { list(true); }), HasSubstr("set data.path=" + at("Pets").string()));
  EXPECT_EQ(list_class_files({.path = at("Pets"), .val_share = 0.5}).class_names.size(), 2U);
}

TEST_F(ClassFolder, TablesNameFilesAndLabels) {
  put_class("images", 4);
  put("photo, one.png");
  put("labels.csv",
      "\xef\xbb\xbfimage,width,Label\r\n0.png,3,cat\r\n\"photo, one.png\",3,dog\n2,3,cat\n\n3.png,3,dog\n");
  const auto all = [&] {
    auto both = names(list(true, 0.5));
    both.merge(names(list(false, 0.5)));
    return both;
  };
  EXPECT_THAT(all(),
              ElementsAre("images/0.png=cat", "images/2.png=cat", "images/3.png=dog", "photo, one.png=dog"));
  put("labels.csv", "0.png,10\n1.png,9\n2.png,10\n3.png,9\n");
  EXPECT_THAT(list(true).class_names, ElementsAre("9", "10"));
  put("labels.csv", "split,file,class\ntrain,0.png,b\nval,1.png,a\ntrain,2.png,a\ntest,3.png,b\n");
  EXPECT_THAT(names(list(false)), ElementsAre("images/1.png=a", "images/3.png=b"));
  EXPECT_THAT(names(list(true)), ElementsAre("images/0.png=b", "images/2.png=a"));
  fs::rename(at("labels.csv"), at("any.csv"));
  EXPECT_EQ(list(true, 0.2, "any.csv").files.size(), 2U);
}

TEST_F(ClassFolder, ATableOfClassesIsNoTableOfImages) {
  put_class("0", 2);
  put_class("1", 2);
  put("labels.csv", "ClassId,Name\n0,stop\n1,yield\n");
  EXPECT_THAT(list(true).class_names, ElementsAre("0", "1"));
  EXPECT_THAT(list(true).notes, testing::Contains(HasSubstr("labels.csv is not read")));
}

TEST_F(ClassFolder, ListsAndTablesOfSplits) {
  put_class("cats", 2);
  put_class("dogs", 2);
  put("train.txt", "# a comment\ncats/0.png 1\ndogs/0.png 0\n");
  put("val.txt", "cats/1.png 1\ndogs/1 0\n");
  EXPECT_THAT(names(list(true)), ElementsAre("cats/0.png=1", "dogs/0.png=0"));
  EXPECT_THAT(names(list(false)), ElementsAre("cats/1.png=1", "dogs/1.png=0"));
  put("train.txt", "cats/0.png\ndogs/0.png\n");
  fs::remove(at("val.txt"));
  put("test.tsv", "filename\tlabel\ncats/1.png\tcats\n");
  EXPECT_THAT(names(list(true)), ElementsAre("cats/0.png=cats", "dogs/0.png=dogs"));
  EXPECT_THAT(names(list(false)), ElementsAre("cats/1.png=cats"));
  // The file that a contest asks for has no labels.
  fs::remove(at("test.tsv"));
  put("test.csv", "id\n7\n");
  put("train.txt", "cats/0.png\ncats/1.png\ndogs/0.png\ndogs/1.png\n");
  EXPECT_EQ(list(false).files.size(), 2U);
  EXPECT_THAT(list(false).notes,
              testing::Contains(HasSubstr("test.csv is not read, because it has no labels")));
}

TEST_F(ClassFolder, MistakesAreNamed) {
  put_class("images", 2);
  const auto fault = [&](const std::string& table) {
    put("labels.csv", table);
    return error_of([&] {
      const ClassFiles files = list(true);
      if (!files.faults.empty()) throw UserError(files.faults[0]);
    });
  };
  EXPECT_THAT(fault("0.png,a\nnone.png,b\n"), HasSubstr("labels.csv:2: there is no image 'none.png'"));
  EXPECT_THAT(fault("0.png,a\n1.png\n"), HasSubstr("labels.csv:2: expected 2 cells"));
  EXPECT_THAT(fault("a,b,c\n1,2,3\n"),
              HasSubstr("expected columns named file and label, got the columns 'a, b, c'"));
  EXPECT_THAT(fault("../0.png,a\n"), HasSubstr("labels.csv:1: '../0.png' is outside"));
  EXPECT_THAT(fault("/etc/passwd,a\n"), HasSubstr("is outside"));
  EXPECT_THAT(fault(""), HasSubstr("the table is empty"));
  EXPECT_THAT(fault("0.png,a\n1.png,a\n"), HasSubstr("expected at least two classes"));
}

}  // namespace
}  // namespace hearth::data
