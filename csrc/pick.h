// One token out of a row of logits: temperature, softmax, then top-k, top-p and min-p together on that
// one distribution; ties go to the lower id; what is left is sampled by inverting its cumulative
// distribution, in the order of ids.
#pragma once
#include <algorithm>
#include <functional>
#include <vector>

#include "headwater.h"
#include "isa.h"

namespace {

// Ids that pass the filters, ascending, out of weights whose sum is `total`. Only weights above a floor
// are sorted. Below it lies what min-p leaves out, and what top-p surely does: tokens of at most
// (1 - top_p) / n each weigh 1 - top_p together at most, so the others reach top_p without them. Half
// of that bound leaves room for rounding.
// For top-k: as many blocks as there are candidates have a weight of at least the k-th greatest block's.
std::vector<int32_t> kept_ids(const float* weights, int n, double total, std::vector<float> greatest,
                              const HwPick& pick) {
  const double least = std::max(pick.min_p, 0.5 * (1.0 - pick.top_p) / n * total);
  float floor = (float)std::max(least, 1e-37);
  if (pick.top_k > 0 && (size_t)pick.top_k <= greatest.size()) {
    const auto last = greatest.begin() + (pick.top_k - 1);
    std::nth_element(greatest.begin(), last, greatest.end(), std::greater<float>());
    floor = std::max(floor, *last);
  }
  std::vector<int32_t> ids;
  for (int i = 0; i < n; i++)
    if (weights[i] >= floor) ids.push_back(i);
  std::vector<float> ranked;
  ranked.reserve(ids.size());
  for (int32_t id : ids) ranked.push_back(weights[id]);
  size_t count = ranked.size();
  if (pick.top_k > 0 && (size_t)pick.top_k < count) {
    count = pick.top_k;
    std::nth_element(ranked.begin(), ranked.begin() + (count - 1), ranked.end(), std::greater<float>());
    ranked.resize(count);
  }
  if (pick.top_p < 1.0) {
    std::sort(ranked.begin(), ranked.end(), std::greater<float>());
    // A token stays while those before it weigh less than top_p.
    double sum = 0.0;
    size_t before = 0;
    while (before < count && (sum += ranked[before]) < pick.top_p * total) before++;
    count = std::min(count, before + 1);
  }
  if (count == ids.size()) return ids;
  float last = ranked[0];
  for (size_t i = 0; i < count; i++) last = std::min(last, ranked[i]);
  size_t above = 0;
  for (int32_t id : ids) above += weights[id] > last;
  size_t ties = count - above;
  std::vector<int32_t> kept;
  for (int32_t id : ids)
    if (weights[id] > last || (weights[id] == last && ties > 0 && ties--)) kept.push_back(id);
  return kept;
}

// The first id at which the cumulative weight passes `share` of the whole; of all ids, block by block.
int64_t invert(const float* weights, int n, const std::vector<double>& sums, double share) {
  double total = 0.0;
  for (double sum : sums) total += sum;
  const double target = share * total;
  double before = 0.0;
  size_t block = 0;
  while (block + 1 < sums.size() && before + sums[block] <= target) before += sums[block++];
  const int begin = (int)block * WEIGHT_BLOCK, end = std::min(n, begin + WEIGHT_BLOCK);
  int64_t last = -1;
  for (int i = begin; i < end; i++) {
    if (weights[i] <= 0.0f) continue;
    last = i;
    if ((before += weights[i]) > target) return i;
  }
  if (last >= 0) return last;  // rounding has eaten the rest of the block
  for (int i = begin - 1; i >= 0; i--)
    if (weights[i] > 0.0f) return i;
  return -1;
}

int64_t invert(const float* weights, const std::vector<int32_t>& ids, double share) {
  double total = 0.0, sum = 0.0;
  for (int32_t id : ids) total += weights[id];
  for (int32_t id : ids)
    if ((sum += weights[id]) > share * total) return id;
  return ids.empty() ? -1 : ids.back();
}

// The row's token; -1 where its logits are not numbers, or every token is masked.
int64_t pick_row(const Isa& isa, const float* logits, int n, const HwPick& pick) {
  bool is_finite, is_number;
  const float most = isa.row_most(logits, n, &is_finite, &is_number);
  if (!(pick.may_be_masked ? is_number : is_finite) || most == -INFINITY) return -1;
  if (pick.is_greedy) return std::find(logits, logits + n, most) - logits;
  std::vector<float> weights(n);
  std::vector<double> sums((n + WEIGHT_BLOCK - 1) / WEIGHT_BLOCK);
  std::vector<float> greatest(sums.size());
  const float inverse = (float)std::min(1.0 / pick.temperature, 1e30);
  isa.weigh_row(logits, n, most, inverse, weights.data(), sums.data(), greatest.data());
  if (pick.top_k <= 0 && pick.top_p >= 1.0 && pick.min_p <= 0.0)
    return invert(weights.data(), n, sums, pick.share);
  double total = 0.0;
  for (double sum : sums) total += sum;
  return invert(weights.data(), kept_ids(weights.data(), n, total, greatest, pick), pick.share);
}

}  // namespace
