#include "io/metrics_table.h"

#include <gtest/gtest.h>

#include <fstream>
#include <limits>

#include "temporary_folder.h"

namespace hearth::io {
namespace {

TEST(MetricsTable, NewMetricsAddColumns) {
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "metrics.csv";
  MetricsTable table(path, -1);
  table.add(1, std::vector<Metric>{{"train/loss", 0.5}, {"train/grad_norm", 2}});
  table.add(2, std::vector<Metric>{{"train/grad_norm", std::numeric_limits<double>::infinity()}});
  table.add(2, std::vector<Metric>{{"eval/loss", 0.25}, {"eval/accuracy", 0.1}});
  table.add(3, std::vector<Metric>{{"train/loss", 0.1}});
  EXPECT_EQ(read_file(path),
            "step,train/loss,train/grad_norm,eval/loss,eval/accuracy\n"
            "1,0.5,2,,\n"
            "2,,,,\n"
            "2,,,0.25,0.1\n"
            "3,0.1,,,\n");
}

TEST(MetricsTable, ResumingRemovesLaterAndIncompleteRows) {
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "metrics.csv";
  {
    MetricsTable table(path, -1);
    for (const int64_t step : {9, 10, 11}) table.add(step, std::vector<Metric>{{"train/loss", 1.0 / 3}});
    table.sync();
    table.add(12, std::vector<Metric>{{"train/loss", 1}});
  }
  std::ofstream(path, std::ios::app) << "1";
  MetricsTable table(path, 10);
  table.add(11, std::vector<Metric>{{"train/loss", 2}});
  EXPECT_EQ(read_file(path), "step,train/loss\n9,0.3333333333333333\n10,0.3333333333333333\n11,2\n");
}

TEST(MetricsTable, ANewRunReplacesATable) {
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "metrics.csv";
  std::ofstream(path) << "step,train/loss\n0,1\n";
  MetricsTable(path, -1);
  EXPECT_EQ(read_file(path), "step\n");
}

TEST(MetricsTable, ResumingReplacesAnotherFile) {
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "metrics.csv";
  for (const char* text : {"", "step", "a,b\n1,2\n", "step,x\n1e5,2\n,\n-\n\xff\n"}) {
    std::ofstream(path) << text;
    MetricsTable table(path, 100);
    table.add(7, std::vector<Metric>{{"x", 5}});
    EXPECT_EQ(read_file(path), "step,x\n7,5\n") << text;
  }
}

}  // namespace
}  // namespace hearth::io
