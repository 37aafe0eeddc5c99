#pragma once

#include <string>
#include <vector>

#include "nn/module.h"
#include "recipe/recipe.h"

/// Knowledge distillation of image tasks: the teacher is the model of a run, frozen, which is evaluated on
/// the student's images during training.
namespace hearth::tasks {

/// Returns the recipe of the run in the folder distill.from. Throws a UserError if the folder is not a run
/// with weights.
recipe::Recipe read_image_teacher(const recipe::Recipe& recipe);
/// Throws a UserError unless the teacher, which has the recipe's task, was trained on images of the same size
/// and with the same classes, and, for detection, has the same anchors. `names`: class names of the recipe;
/// empty: unknown.
void check_image_teacher(const recipe::Recipe& recipe, const recipe::Recipe& teacher,
                         const std::vector<std::string>& names);
/// True if both recipes normalize images alike.
bool normalizes_alike(const recipe::Recipe& one, const recipe::Recipe& other);
/// Throws a UserError if the teacher's images have another normalization.
void check_teacher_normalization(const recipe::Recipe& recipe, const recipe::Recipe& teacher);

/// Term of a loss that compares a student with its teacher.
struct TeacherLoss {
  ir::ValueId divergence = ir::kNone;  ///< of each row; kNone: no teacher
  double weight = 0;                   ///< distill.weight

  /// Returns (1 - weight) losses + weight divergence; without a teacher the losses, which have an element per
  /// row.
  ir::ValueId mix(nn::Builder& builder, ir::ValueId losses) const;
};

/// Compares logits of a student with those of its teacher, both [rows, classes] (ops::distill_loss). `attrs`:
/// further attributes of the op; `labels`: its optional input.
TeacherLoss compare_with_teacher(nn::Builder& builder, const recipe::Distill& distill, ir::ValueId logits,
                                 ir::ValueId teacher, ir::Attrs attrs = {}, ir::ValueId labels = ir::kNone);

}  // namespace hearth::tasks
