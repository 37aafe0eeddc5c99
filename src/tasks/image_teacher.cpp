#include "tasks/image_teacher.h"

#include <fmt/ranges.h>

#include "base/error.h"
#include "base/run_files.h"
#include "hub/model_folder.h"
#include "hub/normalization.h"
#include "recipe/recipe_file.h"
#include "tasks/detect/detector.h"

namespace hearth::tasks {
namespace {

bool has_tensors(const recipe::Recipe& recipe) {
  return recipe::data_kind(recipe.data.kind) == recipe::DataKind::tensors;
}

/// Throws a UserError if the teacher's predictions have other anchors or cells than the student's.
void check_detector(const recipe::Recipe& recipe, const recipe::Recipe& teacher) {
  const DetectorDef* student = find_detector(recipe.model.name);
  if (student == nullptr || student->open == find_detector(teacher.model.name)->open) return;
  user_error(
      "distill.from={}: the teacher is {}, whose anchors differ from those of {}; use a teacher of the same "
      "family",
      recipe.distill.from, teacher.model.name, recipe.model.name);
}

std::string image_shape(const recipe::Data& data) {
  return fmt::format("{}x{}x{}", data.image_size.width, data.image_size.height, data.channels);
}

void check_images(const recipe::Recipe& recipe, const recipe::Recipe& teacher) {
  const recipe::Data &images = recipe.data, &seen = teacher.data;
  if (images.image_size == seen.image_size && images.channels == seen.channels) return;
  user_error(
      "distill.from={}: the teacher was trained on images of {}, but the recipe's are {}; set "
      "data.image_size and data.channels to the teacher's values, or train a teacher on such images",
      recipe.distill.from, image_shape(seen), image_shape(images));
}

std::string normalization_of(const recipe::Recipe& recipe) {
  if (has_tensors(recipe)) return "no normalization";
  return fmt::format("data.mean=[{}] data.std=[{}]", fmt::join(recipe.data.mean, ","),
                     fmt::join(recipe.data.std, ","));
}

}  // namespace

recipe::Recipe read_image_teacher(const recipe::Recipe& recipe) {
  const fs::path from = recipe.distill.from;
  const recipe::Distill &distill = recipe.distill, unset;
  for (const auto& [key, is_set] : {std::pair("distill.top_k", distill.top_k != unset.top_k),
                                    std::pair("distill.quantize", distill.quantize != unset.quantize)})
    if (is_set) user_error("{0} is for teachers of language models; remove {0}", key);
  if (!path_exists(from / kRunRecipe)) {
    user_error(
        "there is no run in '{}' (distill.from); set distill.from to the folder of a run that trained the "
        "teacher",
        from.string());
  }
  recipe::Recipe teacher = recipe::load_recipe(from / kRunRecipe, {});
  if (!teacher.model.widths.empty()) {
    user_error(
        "distill.from={}: the teacher's channels were pruned (model.widths); use the run from which it was "
        "pruned as the teacher",
        from.string());
  }
  if (!path_exists(hub::run_weights(from, false)))
    user_error("distill.from={}: the run has no weights yet; continue it: hearth resume {}", from.string(),
               from.string());
  return teacher;
}

void check_image_teacher(const recipe::Recipe& recipe, const recipe::Recipe& teacher,
                         const std::vector<std::string>& names) {
  check_detector(recipe, teacher);
  check_images(recipe, teacher);
  const recipe::Model &mine = recipe.model, &theirs = teacher.model;
  if (mine.num_classes != theirs.num_classes) {
    user_error(
        "distill.from={}: the teacher has {} classes, but the recipe has {}; use a teacher with the "
        "same classes",
        recipe.distill.from, theirs.num_classes, mine.num_classes);
  }
  if (names.empty() || theirs.class_names.empty() || names == theirs.class_names) return;
  user_error(
      "distill.from={}: the teacher's classes ({}) differ from the recipe's ({}); use a teacher with the "
      "same "
      "classes in the same order",
      recipe.distill.from, fmt::join(theirs.class_names, ", "), fmt::join(names, ", "));
}

bool normalizes_alike(const recipe::Recipe& one, const recipe::Recipe& other) {
  if (has_tensors(one) || has_tensors(other)) return has_tensors(one) == has_tensors(other);
  const auto values = [](const recipe::Data& data) {
    return hub::Normalization{.file = {}, .mean = data.mean, .std = data.std};
  };
  return hub::agree(values(one.data), values(other.data));
}

void check_teacher_normalization(const recipe::Recipe& recipe, const recipe::Recipe& teacher) {
  if (normalizes_alike(recipe, teacher)) return;
  user_error(
      "distill.from={}: the teacher was trained with {}, but the recipe has {}; set the teacher's "
      "values",
      recipe.distill.from, normalization_of(teacher), normalization_of(recipe));
}

ir::ValueId TeacherLoss::mix(nn::Builder& builder, ir::ValueId losses) const {
  if (divergence == ir::kNone) return losses;
  const Shape shape = builder.graph().type(losses).shape;
  const ir::ValueId compared =
      builder.op("reshape", {divergence}, {{"shape", std::vector<int64_t>(shape.begin(), shape.end())}});
  return builder.add(builder.op("scale", {losses}, {{"factor", 1 - weight}}),
                     builder.op("scale", {compared}, {{"factor", weight}}));
}

TeacherLoss compare_with_teacher(nn::Builder& builder, const recipe::Distill& distill, ir::ValueId logits,
                                 ir::ValueId teacher, ir::Attrs attrs, ir::ValueId labels) {
  attrs.set("divergence", std::string(name_of(distill.loss)));
  attrs.set("temperature", distill.temperature);
  attrs.set("beta", distill.beta);
  std::vector<ir::ValueId> inputs = {logits, teacher};
  if (labels != ir::kNone) inputs.push_back(labels);
  return {.divergence = builder.op("distill_loss", inputs, std::move(attrs)), .weight = distill.weight};
}

}  // namespace hearth::tasks
