// link.hpp - a circular doubly linked list whose nodes live in their owners.
#pragma once

namespace idlewheel::detail {

// A node, and also the head of a list. Alone, it points to itself. Linked by address, so it can be
// neither copied nor moved. It does not unlink itself: what holds the list has books to keep.
class link {
 public:
  link() noexcept = default;
  link(const link&) = delete;
  link& operator=(const link&) = delete;

  // As a head.
  bool empty() const noexcept { return next_ == this; }
  link* front() noexcept { return next_; }
  const link* front() const noexcept { return next_; }
  link* back() noexcept { return prev_; }

  void push_back(link& node) noexcept {
    node.prev_ = prev_;
    node.next_ = this;
    prev_->next_ = &node;
    prev_ = &node;
  }

  // Moves all nodes of `other` behind ours. O(1).
  void take_all(link& other) noexcept {
    if (other.empty()) return;
    other.next_->prev_ = prev_;
    other.prev_->next_ = this;
    prev_->next_ = other.next_;
    prev_ = other.prev_;
    other.prev_ = other.next_ = &other;
  }

  // As a node: leaves the list. Returns the head when that list is empty now, else null. The node's
  // own links are left as they were: whoever unlinks it knows that it is in no list.
  link* unlink() noexcept {
    link* const before = prev_;
    link* const after = next_;
    before->next_ = after;
    after->prev_ = before;
    return before == after ? before : nullptr;
  }
  link* next() noexcept { return next_; }
  const link* next() const noexcept { return next_; }
  const link* prev() const noexcept { return prev_; }

 private:
  link* prev_ = this;
  link* next_ = this;
};

}  // namespace idlewheel::detail
