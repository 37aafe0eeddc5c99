#include <fmt/format.h>

#include <cstdio>

#include "../coco_results.h"
#include "base/error.h"
#include "base/file.h"
#include "data/boxes/boxes_format.h"
#include "tasks/detect/coco_eval.h"

/// coco_numbers TRUTH.json RESULTS.json: the twelve numbers, AP, AP50, recall and precision at 101 recalls
/// of each class, with all of their digits, and the summary.
int main(int argc, char** argv) {
  using namespace hearth;
  if (argc != 3) return 2;
  try {
    const data::BoxedImages set = data::parse_coco(read_file(argv[1]), argv[1]).labels;
    const auto images = tasks::read_coco_results(read_file(argv[2]), set);
    const tasks::CocoResult result = tasks::evaluate_coco(images, std::ssize(set.class_names));
    for (const double number : result.numbers) fmt::print("{:.17g}\n", number);
    for (const auto& of : result.classes) {
      fmt::print("{:.17g} {:.17g} {:.17g}", of.ap, of.ap50, of.recall);
      for (const double precision : of.precision_at_recall) fmt::print(" {:.17g}", precision);
      fmt::print("\n");
    }
    fmt::print("{}", tasks::coco_summary(result.numbers));
  } catch (const UserError& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 2;
  }
  return 0;
}
