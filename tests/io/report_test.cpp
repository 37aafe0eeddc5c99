#include "io/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>

#include "base/file.h"
#include "temporary_folder.h"

namespace hearth::io {
namespace {

using testing::HasSubstr;
using testing::Not;

size_t count_of(std::string_view text, std::string_view part) {
  size_t count = 0;
  for (size_t at = 0; (at = text.find(part, at)) != text.npos; at += part.size()) ++count;
  return count;
}

TEST(ReportPage, ConfusionMatrixHasSharesOfTheRowAndCounts) {
  const ReportData data{.class_names = {"cat", "dog"}, .confusion = {3, 1, 0, 400}};
  const std::string html = make_report(data);
  for (const char* cell : {">75%<small>3</small></td>", ">25%<small>1</small></td>", "<td></td>",
                           ">100%<small>400</small></td>"})
    EXPECT_THAT(html, HasSubstr(cell));
  const ReportData rare{.class_names = {"cat", "dog"}, .confusion = {999, 1, 0, 0}};
  EXPECT_THAT(make_report(rare), HasSubstr(">&lt;1%<small>1</small></td>"));
}

TEST(ReportPage, TextsOfFilesAreEscapedEverywhere) {
  const std::string bad = "<script>'\"&";
  ReportData data{.title = bad, .subtitle = bad, .command = bad, .summary = {{bad, bad}}};
  data.class_names = {bad};
  data.confusion = {1};
  data.sections = {{.title = bad,
                    .note = bad,
                    .charts = {unit_chart(bad, bad, bad, {{.name = bad, .color = "red"}}, bad),
                               bar_chart(bad, "red", {{bad, 1, bad}}),
                               line_chart(bad, {{.name = bad, .color = "red", .points = {{1, 1}}}}, bad)}}};
  data.samples = data.mistakes = {{.png = "p", .truth = bad, .predicted = bad}};
  data.tables = {{.title = bad, .header = {bad}, .rows = {{bad}}}};
  data.legend = {{bad, bad}};
  data.strips = data.worst_strips = {{.images = {"p"}, .caption = bad}};
  data.strips_title = data.worst_note = bad;
  const std::string html = make_report(data);
  EXPECT_EQ(count_of(html, "<script>"), 1U) << "the script of the page";
  EXPECT_EQ(count_of(html, "'\"&"), 0U);
}

TEST(ReportPage, TheSecurityPolicyPermitsThePageScriptAlone) {
  const std::string html = make_report({});
  const size_t begin = html.find("<script>") + 8, end = html.find("</script>");
  const TemporaryFolder folder;
  write_file_atomically(folder.path() / "script", html.substr(begin, end - begin));
  const std::string command = "sha256sum " + (folder.path() / "script").string();
  FILE* pipe = popen(command.c_str(), "r");  // NOLINT(cert-env33-c): a command of this test
  ASSERT_NE(pipe, nullptr);
  std::string hash;
  for (int i = 0; i < 32; ++i) {
    unsigned byte = 0;
    ASSERT_EQ(fscanf(pipe, "%2x", &byte), 1);
    hash += static_cast<char>(byte);
  }
  pclose(pipe);
  EXPECT_THAT(html, HasSubstr("script-src 'sha256-" + base64(hash) + "'"));
  EXPECT_THAT(html, HasSubstr("default-src 'none'"));
}

TEST(ReportPage, WorstMistakesComeBeforeSamples) {
  ReportData data;
  EXPECT_THAT(make_report(data), Not(HasSubstr("Worst mistakes")));
  data.samples = {{.png = "p", .truth = "cat", .predicted = "cat", .probability = 0.5}};
  data.mistakes = {{.png = "p", .truth = "cat", .predicted = "dog", .probability = 0.998}};
  const std::string html = make_report(data);
  EXPECT_LT(html.find("Worst mistakes"), html.find("Sample predictions"));
  EXPECT_THAT(html, HasSubstr("alt='cat, predicted as dog'"));
  EXPECT_THAT(html, HasSubstr("dog 99.8%</div><div>is cat</div>"));
}

TEST(ReportPage, AUnitChartMapsTheUnitSquareAndDescribesItself) {
  const std::string chart =
      unit_chart("Precision and recall", "recall", "precision",
                 {{.name = "cat", .color = "red", .points = {{0, 1}, {1, 0}, {NAN, 1}}}}, "cat: AP 0.5");
  EXPECT_THAT(chart, HasSubstr("<title>Precision and recall</title><desc>cat: AP 0.5</desc>"));
  EXPECT_THAT(chart, HasSubstr("d='M62.0 34.0 L546.0 260.0'"));
  EXPECT_THAT(chart, HasSubstr("</i>cat</span>"));
  EXPECT_THAT(chart, HasSubstr(">0.6</text>"));
}

TEST(ReportPage, EmptySectionsAndTablesAreOmitted) {
  ReportData data;
  data.sections = {{.title = "Nothing", .note = "No chart", .charts = {}}};
  data.tables = {{.title = "No rows", .header = {"x"}, .rows = {}}};
  const std::string html = make_report(data);
  for (const char* part : {"Nothing", "No chart", "No rows", "<h2>Curves</h2>"})
    EXPECT_THAT(html, Not(HasSubstr(part)));
}

TEST(ReportPage, OnlySortableTablesAreSorted) {
  ReportData data;
  data.tables = {{.title = "a", .header = {"x"}, .rows = {{"1"}}}};
  EXPECT_EQ(count_of(make_report(data), "<table class='sortable'>"), 0U);
  data.tables[0].is_sortable = true;
  EXPECT_EQ(count_of(make_report(data), "<table class='sortable'>"), 1U);
}

}  // namespace
}  // namespace hearth::io
